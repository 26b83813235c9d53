// json_report.cpp: nccl-tests' keys, with its "true" and "false" as text, so that scripts read both formats.
// The environment is left out because a launcher's environment holds the job's secret.
#include "json_report.hpp"

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/json_text.hpp"
#include "src/base/printing.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

Json result_json(const Result& result) {
    Json json;
    json["time"] = result.measurement.time_us;
    json["alg_bw"] = result.algorithm_bandwidth;
    json["bus_bw"] = result.bus_bandwidth;
    json["nwrong"] = result.wrong ? Json(*result.wrong) : Json(nullptr);
    json["min_time"] = result.measurement.least_us;
    json["calls"] = result.measurement.calls;
    return json;
}

Json iterations_json(const Arguments& arguments, const std::vector<double>& times) {
    const Spread spread = spread_of({times.begin() + arguments.skipped_iterations, times.end()});
    return {{"skipped_iterations", arguments.skipped_iterations},
            {"min_us", spread.least},
            {"max_us", spread.most},
            {"p99_us", spread.p99},
            {"cv_pct", spread.variation_percent},
            {"times_us", times}};
}

Json setting_json(const Row& row) {
    return {{"size", row.bytes},
            {"count", row.count},
            {"type", row.element->name},
            {"redop", row.reduction->name},
            {"root", row.root}};
}

const char* word(bool value) { return value ? "true" : "false"; }

}  // namespace

JsonReport::JsonReport(const char* library, const Arguments& a, const std::vector<RankPlace>& places)
    : arguments_(a), report_(std::make_unique<Json>()) {
    path_ = a.json_file;
    file_ = std::fopen(path_.c_str(), "wx");
    for (int i = 0; !file_ && errno == EEXIST; ++i) {
        path_ = a.json_file + "." + std::to_string(i);
        file_ = std::fopen(path_.c_str(), "wx");
    }
    if (!file_) path_.clear();
    int version = 0;
    (void)weftGetVersion(&version);
    Json& json = *report_;
    json["version"] = 3;  // of nccl-tests' format
    json["start_time"] = timestamp();
    json["args"] = a.command_line;
    json["library"] = library;
    json["library_version"] = version;
    Json& config = json["config"];
    config["nthreads"] = a.threads;
    config["ngpus"] = a.gpus;
    config["minimum_bytes"] = a.min_bytes;
    config["maximum_bytes"] = a.max_bytes;
    if (a.step_factor > 1)
        config["step_factor"] = a.step_factor;
    else
        config["step_bytes"] = a.step_bytes;
    config["warmup_iters"] = a.warmups;
    config["iterations"] = a.iterations;
    config["aggregated_iterations"] = a.calls_per_group;
    config["validation"] = a.checks;
    config["graph"] = a.graph_launches;
    config["blocking_collectives"] = word(a.blocking != 0);
    config["per_iter_timing"] = word(a.per_iteration);
    config["per_iter_skip"] = a.skipped_iterations;
    config["parallel_init"] = word(a.parallel_init);
    config["registered"] = word(a.registered != Registered::no);
    config["symmetric"] = word(a.registered == Registered::windows);
    config["unalign"] = a.unalign_elements;
    config["statistic"] = a.statistic == Statistic::mean ? "mean" : "median-max";
    Json& devices = config["devices"] = Json::array();
    for (size_t rank = 0; rank < places.size(); ++rank)
        devices.push_back({{"rank", rank},
                           {"group", 0},
                           {"pid", places[rank].pid},
                           {"hostname", places[rank].host},
                           {"device", places[rank].device},
                           {"cpus", places[rank].cpus},
                           {"device_info", places[rank].model}});
    json["results"] = Json::array();
    json["errors"] = {"the run did not finish"};
}

JsonReport::~JsonReport() {
    if (const weft::internal::Status written = write(); !written)
        weft::internal::print_error("{}\n", written.sentence());
}

weft::internal::Status JsonReport::write() {
    if (!file_) return weft::internal::ok();
    const std::string text = weft::internal::json_text(*report_, 1) + "\n";
    int error = std::fwrite(text.data(), 1, text.size(), file_) == text.size() ? 0 : errno;
    if (std::fclose(std::exchange(file_, nullptr)) != 0 && error == 0) error = errno;
    if (error == 0) return weft::internal::ok();
    std::remove(path_.c_str());
    return weft::internal::fail(weft::internal::error::file_unwritable, "-J {}: it could not be written: {}", path_,
                                weft::internal::errno_text(error));
}

void JsonReport::add(const Row& row) {
    Json json = setting_json(row);
    json["out_of_place"] = result_json(row.out_of_place);
    json["in_place"] = row.in_place ? result_json(*row.in_place) : Json(nullptr);
    if (arguments_.per_iteration) {
        json["out_of_place_per_iter"] = iterations_json(arguments_, row.out_of_place.measurement.iterations_us);
        if (row.in_place)
            json["in_place_per_iter"] = iterations_json(arguments_, row.in_place->measurement.iterations_us);
    }
    if (arguments_.show_algorithm) {
        json["algorithm"] = row.algorithm;
        json["transport"] = row.transport;
    }
    (*report_)["results"].push_back(json);
}

void JsonReport::add(const RegretRow& row) {
    Json json = setting_json(row.setting);
    json["chosen"] = row.chosen.algorithm;
    json["chosen_us"] = row.chosen.us;
    json["best"] = row.best.algorithm;
    json["best_us"] = row.best.us;
    json["ratio"] = row.ratio();
    json["nwrong"] = arguments_.checks > 0 ? Json(row.wrong) : Json(nullptr);
    for (const Timed& one : row.all) json["candidates_us"][one.algorithm] = one.us;
    (*report_)["results"].push_back(json);
}

void JsonReport::finish(const Regret& regret) {
    (*report_)["regret"] = {
        {"mean_percent", regret.mean_percent}, {"worst_percent", regret.worst_percent}, {"worst", regret.worst}};
}

void JsonReport::finish(int64_t wrong, std::optional<double> average_bus_bandwidth,
                        const std::optional<Memory>& memory) {
    Json& json = *report_;
    json["out_of_bounds"] = {{"count", wrong}, {"okay", word(wrong == 0)}};
    if (average_bus_bandwidth)
        json["average_bus_bandwidth"] = {{"bandwidth", *average_bus_bandwidth}, {"okay", "unchecked"}};
    if (memory)
        json["memory"] = {{"board", memory->board},
                          {"connection", memory->connection},
                          {"heap", memory->heap},
                          {"total", memory->total}};
    json["errors"] = Json::array();
    json["end_time"] = timestamp();
}

}  // namespace perf
