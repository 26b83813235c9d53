// json_report.hpp: the report of -J: the run as one JSON object with nccl-tests' keys.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "regret.hpp"
#include "src/base/result.hpp"
#include "table.hpp"

namespace perf {

// Opens the file at once, so that an error of the path is reported before the run.
// The destructor writes a report that is not yet written, also after a failure. Owned by rank 0.
class JsonReport {
  public:
    JsonReport(const char* library, const Arguments& arguments, const std::vector<RankPlace>& places);
    ~JsonReport();
    JsonReport(const JsonReport&) = delete;
    JsonReport& operator=(const JsonReport&) = delete;
    // The file's path: arguments.json_file, with a number appended if that exists. Empty: no file can be written.
    const std::string& path() const { return path_; }
    void add(const Row& row);
    void add(const RegretRow& row);
    void finish(const Regret& regret);
    void finish(int64_t wrong, std::optional<double> average_bus_bandwidth, const std::optional<Memory>& memory);

    // Call it once. If the file cannot be written completely, the function removes it.
    weft::internal::Status write();

  private:
    const Arguments& arguments_;
    std::string path_;
    std::FILE* file_ = nullptr;
    std::unique_ptr<nlohmann::ordered_json> report_;
};

}  // namespace perf
