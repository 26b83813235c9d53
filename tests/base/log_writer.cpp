// log_writer.cpp: a program that logs, for log_test: every level and category once, or lines of many threads.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "src/base/log.hpp"

namespace {

int formatted = 0;
int count_formatting() { return ++formatted; }

void log_everything() {
    WEFT_LOG(version, all, "version line");
    WEFT_LOG(warn, coll, "warn coll");
    WEFT_LOG(info, init, "info init");
    WEFT_LOG(info, coll, "info coll");
    WEFT_LOG(info, net, "info net");
    WEFT_LOG(trace, init, "trace init");
    WEFT_LOG_RANK(3, warn, init, "of a rank");
    WEFT_LOG(warn, init, "one\ntwo");
}

void log_from_threads(int threads, int lines) {
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) {
        all.emplace_back([=] {
            for (int line = 0; line < lines; ++line) {
                WEFT_LOG(warn, init, "thread {} line {} {}", thread, line, std::string(size_t(line % 300), '.'));
            }
        });
    }
    for (std::thread& thread : all) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 1) {
        log_everything();
    } else if (strcmp(argv[1], "threads") == 0) {
        log_from_threads(atoi(argv[2]), atoi(argv[3]));
    } else if (strcmp(argv[1], "unwanted") == 0) {
        // Returns how often an argument of an unwanted line was computed.
        for (int i = 0; i < 10; ++i) WEFT_LOG(trace, init, "{}", count_formatting());
        return formatted;
    } else if (strcmp(argv[1], "fork") == 0) {
        WEFT_LOG(warn, init, "parent");
        pid_t child = fork();
        if (child == 0) {
            WEFT_LOG(warn, init, "child");
            _exit(0);
        }
        waitpid(child, nullptr, 0);
    }
    return 0;
}
