// json_report.hpp: -J: the run as one JSON object with nccl-tests' keys.
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

// Opens the file at once, so that a path that can't be written is known before the run. A report that was not written
// is written when it is destroyed, also after a failure. Owned by rank 0.
class JsonReport {
  public:
    JsonReport(const char* library, const Arguments& arguments, const std::vector<RankPlace>& places);
    ~JsonReport();
    JsonReport(const JsonReport&) = delete;
    JsonReport& operator=(const JsonReport&) = delete;
    // The file: arguments.json_file, or with a number behind it if that exists. Empty: it cannot be written.
    const std::string& path() const { return path_; }
    void add(const Row& row);
    void add(const RegretRow& row);
    void finish(const Regret& regret);
    void finish(int64_t wrong, std::optional<double> average_bus_bandwidth, const std::optional<Memory>& memory);

    // Call it once. If the file cannot be written completely, it is removed.
    weft::internal::Status write();

  private:
    const Arguments& arguments_;
    std::string path_;
    std::FILE* file_ = nullptr;
    std::unique_ptr<nlohmann::ordered_json> report_;
};

}  // namespace perf
