// job.hpp: a job of plugin_worker: ranks that are hosts of their own.
#pragma once
#include <cstdlib>
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
// The loader looks into `folder` first, in place of the folders of a build.
struct LibraryFolder {
    explicit LibraryFolder(const std::string& folder) {
        if (const char* before = getenv("LD_LIBRARY_PATH")) before_ = before;
        setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
    }
    LibraryFolder(const LibraryFolder&) = delete;
    LibraryFolder& operator=(const LibraryFolder&) = delete;
    ~LibraryFolder() { setenv("LD_LIBRARY_PATH", before_.c_str(), 1); }

  private:
    std::string before_;
};
inline Job job(int ranks, std::vector<std::string> variables) {
    const ProcessResult result =
        run({WEFT_COMMAND, "run", "-n", std::to_string(ranks), PLUGIN_WORKER}, std::move(variables));
    return {result.output, result.error};
}

}  // namespace weft::internal::test
