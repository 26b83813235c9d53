// job_reader.cpp: a process that reads its job as weftCommInitFromEnvironment does and prints it, one word on each line.
// On failure it prints "failed", the error id and the sentence.
#include <cstdio>

#include "src/launchers/launcher.hpp"

int main() {
    const auto job = weft::internal::read_job();
    if (!job) {
        std::printf("failed\n%s\n%s\n", weft::internal::row_of(job.status().id()).id, job.status().sentence().c_str());
        return 0;
    }
    const weft::internal::Digest digest = job->id.prove("test", 4);
    std::string id;
    for (const unsigned char byte : digest) id += fmt::format("{:02x}", byte);
    const auto again = weft::internal::read_job();
    if (!again || again->id.prove("test", 4) != digest) return 1;
    std::printf("%s\n%d\n%d\n%d\n%d\n%s\n%s\n%d\n%s\n", job->launcher, job->rank, job->ranks, job->local_rank,
                job->local_size, id.c_str(), job->id.root_host().c_str(), int(job->id.root_port()),
                job->id_source.c_str());
    return 0;
}
