// job.hpp: a job of plugin_worker: ranks that are hosts of their own.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tests/subprocess.hpp"

namespace weft::internal::test {

// The lines of the ranks, and the log.
struct Job {
    std::string said, log;
    int count(const std::string& text) const {
        int found = 0;
        for (size_t at = said.find(text); at != std::string::npos; at = said.find(text, at + 1)) ++found;
        return found;
    }
};
inline Job job(int ranks, std::vector<std::string> variables) {
    const ProcessResult result =
        run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), PLUGIN_WORKER}, std::move(variables));
    return {result.output, result.error};
}

}  // namespace weft::internal::test
