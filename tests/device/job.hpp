// job.hpp: processes with ranks on a machine's devices (worker.cpp), on one host or on several made-up ones.
#pragma once
#include "tests/device/machine.hpp"
#include "tests/device/ranks.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {

using Steps = std::vector<std::string>;

inline std::string new_id() { return weft::to_text(weft::make_unique_id()); }

// Processes with `each` ranks on a machine.
class Job {
  public:
    Job(int ranks, std::string machine, int devices, int each = 1)
        : ranks_(ranks), each_(each), devices_(devices_of(devices)), machine_(std::move(machine)) {}
    void start(const Steps& steps, const std::string& machine) {
        std::vector<std::string> arguments{device_worker(),        id_,
                                           std::to_string(ranks_), std::to_string(int(processes_.size()) * each_),
                                           std::to_string(each_),  std::to_string(devices_)};
        arguments.insert(arguments.end(), steps.begin(), steps.end());
        std::vector<std::string> environment = environment_of(machine);
        environment.push_back("WEFT_ALGO=" + algo);
        if (processes_a_host > 0)
            environment.push_back("WEFT_HOSTID=node" + std::to_string(int(processes_.size()) / processes_a_host));
        const char* const sanitizer = getenv("ASAN_OPTIONS");  // which shall tell where a process hangs
        environment.push_back("ASAN_OPTIONS=" + std::string(sanitizer ? sanitizer : "") + ":handle_abort=1");
        environment.insert(environment.end(), variables.begin(), variables.end());
        processes_.push_back(std::make_unique<Subprocess>(arguments, environment));
    }
    void start(const Steps& steps) { start(steps, machine_); }
    void start_all(const Steps& steps) {
        while (int(processes_.size()) * each_ < ranks_) start(steps);
    }
    std::vector<std::string> variables{"WEFT_DEBUG=WARN"};
    std::string algo;
    int processes_a_host = 0;  // 0: all on one
    int started() const { return int(processes_.size()); }
    Subprocess& operator[](int process) { return *processes_[size_t(process)]; }
    // That it ends in order, having given back everything.
    void finish(int process) {
        Subprocess& one = (*this)[process];
        const bool ended = one.ends();
        if (!ended) one.end();
        const int code = one.wait();
        INFO("process " << process << " said:\n" << one.output() << one.error());
        CHECK(ended);
        CHECK(code == 0);
        CHECK_FALSE(contains(one.output(), "wrong"));
    }
    void finish() {
        for (int process = 0; process < int(processes_.size()); ++process) finish(process);
    }

  private:
    std::string id_ = new_id();
    int ranks_, each_, devices_;
    std::string machine_;
    std::vector<std::unique_ptr<Subprocess>> processes_;
};

// A job of three hosts with one rank each. Rank 1 waits for rank 2, whose reports would pass through rank 0, which dies.
inline void check_dead_leader_on_the_way(Job& job) {
    job.start({"init", "say ready", "pause"});
    job.start({"init", "receive 100", "error", "destroy"});
    job.start({"init", "say ready", "pause"});
    for (const int rank : {0, 2}) REQUIRE(job[rank].says("ready"));
    job[0].kill(SIGKILL);
    job[0].wait();
    job.finish(1);
    INFO(job[1].output());
    CHECK(contains(job[1].output(), "error 6"));
    CHECK(contains(job[1].output(), "reports between rank 1 and rank 2"));
    CHECK(contains(job[1].output(), "[host.lost]"));
    job[2].kill(SIGKILL);
    job[2].wait();
}

}  // namespace weft::internal::test
