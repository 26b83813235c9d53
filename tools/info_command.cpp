#include "tools/info_command.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/build_facts.hpp"
#include "src/base/cpu.hpp"
#include "src/base/json_text.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/drivers/inventory.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/registry.hpp"
#include "src/selector/catalog.hpp"
#include "tools/environment_check.hpp"
#include "tools/explain_command.hpp"
#include "tools/rdma_report.hpp"
#include "tools/topology_command.hpp"
#include "topology/detect/discover.hpp"
#include "topology/summary.hpp"

namespace weft::internal::tools {
namespace {

using Json = nlohmann::ordered_json;

Json describe_build() {
    Json sets = Json::array();
    for (const CpuKernels* set : all_cpu_kernels()) sets.push_back(set->isa);
    const std::string& wanted = options().isa;
    const CpuKernels* active = wanted.empty() ? &cpu_kernels() : find_cpu_kernels(wanted);
    return {{"version", library_version()},
            {"compiler", library_compiler()},
            {"sanitizers", library_sanitizers()},
            {"isa_sets", sets},
            {"isa_active", active != nullptr ? Json(active->isa) : Json()}};
}

// The topology as detected and merged with WEFT_TOPO_FILE; `weft topology show` prints the whole graph.
Json describe_topology(const Result<topology::Discovered>& found) {
    if (!found) return {{"why_not", found.status().sentence()}, {"summary", Json::array()}, {"notes", Json::array()}};
    return {{"why_not", ""}, {"summary", topology::summarize(found->graph)}, {"notes", found->notes}};
}

Json describe_machine(const Result<topology::Discovered>& topology) {
    return {{"processor", cpu_model()},
            {"cores_allowed", allowed_cores()},
            {"second_level_cache_bytes", second_level_cache_bytes()},
            {"last_level_cache_bytes", last_level_cache_bytes()},
            {"page_bytes", sysconf(_SC_PAGESIZE)},
            {"topology", describe_topology(topology)}};
}

Json describe(std::span<const Algorithm> algorithms) {
    Json rows = Json::array();
    for (const Algorithm& row : algorithms) {
        rows.push_back({{"name", row.name},
                        {"collective", name_of(row.collective)},
                        {"cost", row.of_user ? "of " + row.of_user->file : row.cost}});
    }
    return rows;
}

// `why_not` is empty for a transport that works here.
Json describe_transports() {
    Json rows = Json::array();
    for (const Transport* row : registry::transports()) {
        std::string why_not = row->available();
        Json rails = Json::array();
        for (const Rail& rail : row->rails())
            rails.push_back(
                {{"name", rail.name}, {"detail", rail.detail}, {"mbps", rail.mbps}, {"why_not", rail.why_not}});
        rows.push_back(
            {{"name", row->name}, {"available", why_not.empty()}, {"why_not", why_not}, {"rails", std::move(rails)}});
    }
    return rows;
}

Json describe_gpus() {
    const DriverInventory drivers = describe_drivers();
    Json rows = Json::array();
    for (const GpuInventory& gpu : drivers.gpus) {
        rows.push_back({{"device", gpu.device},
                        {"name", gpu.name},
                        {"uuid", gpu.uuid},
                        {"bus_id", gpu.bus_id},
                        {"sm", gpu.sm},
                        {"multiprocessors", gpu.multiprocessors},
                        {"memory_bytes", gpu.memory_bytes},
                        {"compute_mode", gpu.compute_mode},
                        {"features", gpu.features},
                        {"peers", gpu.peers},
                        {"nvlinks", gpu.nvlinks},
                        {"nvlink_ends", gpu.nvlink_ends},
                        {"nvlink_domain", gpu.nvlink_domain},
                        {"problem", gpu.problem}});
    }
    Json codes = Json::array();
    for (const cuda::DeviceCode& code : cuda::device_code())
        codes.push_back({{"name", code.name}, {"bytes", code.fatbin.size()}});
    return {{"cuda_version", drivers.cuda_version},
            {"cuda_library", drivers.cuda_library},
            {"cuda_why_not", drivers.cuda_why_not},
            {"nvml_version", drivers.nvml_version},
            {"nvml_why_not", drivers.nvml_why_not},
            {"device_code", codes},
            {"device_code_targets", cuda::device_code_targets()},
            {"device_code_why_not", codes.empty() ? "" : drivers.code_why_not},
            {"devices", rows}};
}

Json describe_options() {
    Json rows = Json::array();
    const std::vector<OptionRow>& table = option_rows();
    for (size_t i = 0; i < table.size(); ++i) {
        const OptionRow& row = table[i];
        Origin origin = options().origins[i];
        const char* origin_text = origin == Origin::standard      ? "default"
                                  : origin == Origin::environment ? "environment"
                                                                  : "alias";
        std::string value = option_text(options(), OptionIndex(i));
        if (row.secret && origin != Origin::standard) value = "(not shown)";
        rows.push_back({{"name", row.name},
                        {"variable", row.variable},
                        {"aliases", row.aliases},
                        {"type", row.type},
                        {"value", value},
                        {"default", row.standard},
                        {"origin", origin_text},
                        {"help", row.help}});
    }
    return rows;
}

Json describe() {
    const auto catalog = Catalog::load(options().algo_files, 0, registry::algorithms());
    EnvironmentCheck check = check_environment(catalog);
    const auto topology = topology::discover_this_host(options());
    Json rdma = describe_rdma(topology ? &topology->graph : nullptr, check);
    return {{"build", describe_build()},
            {"machine", describe_machine(topology)},
            {"gpus", describe_gpus()},
            {"rdma", std::move(rdma)},
            {"transports", describe_transports()},
            {"algorithms", describe(catalog.rows())},
            {"options", describe_options()},
            {"warnings", check.warnings},
            {"errors", check.errors}};
}

std::string word(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

std::string list(const Json& values) {
    std::string text;
    for (const Json& value : values) text += (text.empty() ? "" : ", ") + word(value);
    return text.empty() ? "none" : text;
}

std::string cache(const Json& bytes) {
    size_t size = bytes.get<size_t>();
    return size == 0 ? "unknown" : fmt::format("{} KiB", size / 1024);
}

void print_gpus(const Json& gpus) {
    const auto or_why = [](const std::string& what, const Json& why_not) {
        return why_not == "" ? what : word(why_not);
    };
    print_output(
        "\nGPUs\n  CUDA driver   {}\n",
        or_why("for CUDA " + word(gpus["cuda_version"]) + ", " + word(gpus["cuda_library"]), gpus["cuda_why_not"]));
    print_output("  NVML          {}\n", or_why("driver " + word(gpus["nvml_version"]), gpus["nvml_why_not"]));
    size_t bytes = 0;
    for (const Json& code : gpus["device_code"]) bytes += code["bytes"].get<size_t>();
    print_output("  device code   {}\n",
                 bytes == 0 ? "none in this build"
                            : fmt::format("for sm {}, {} KiB", word(gpus["device_code_targets"]), bytes / 1024));
    if (gpus["device_code_why_not"] != "")
        print_output("{:16}{},\n{:16}so calls on device memory work on copies in the host's, which is slow\n", "",
                     word(gpus["device_code_why_not"]), "");
    for (const Json& gpu : gpus["devices"]) {
        if (gpu["problem"] != "") {
            print_output("  device {:<6} {}\n", word(gpu["device"]), word(gpu["problem"]));
            continue;
        }
        print_output("  device {:<6} {}, sm_{}, {} multiprocessors, {} MiB, at {}, {}\n", word(gpu["device"]),
                     word(gpu["name"]), word(gpu["sm"]), word(gpu["multiprocessors"]),
                     gpu["memory_bytes"].get<size_t>() >> 20, word(gpu["bus_id"]), word(gpu["uuid"]));
        print_output("                {}; compute mode {}\n", list(gpu["features"]), word(gpu["compute_mode"]));
        print_output("                reaches devices: {}; NVLinks: {}\n", list(gpu["peers"]),
                     gpu["nvlinks"] == 0 ? "none or unknown" : word(gpu["nvlink_ends"]));
        if (gpu["nvlink_domain"] != "")
            print_output("                NVLink domain of hosts: {}\n", word(gpu["nvlink_domain"]));
    }
}

void print(const Json& all) {
    const Json& build = all["build"];
    const Json& machine = all["machine"];
    print_output("Weft {}\n", word(build["version"]));
    print_output("  compiler      {}\n", word(build["compiler"]));
    print_output("  sanitizers    {}\n", list(build["sanitizers"]));
    print_output("  CPU kernels   {} of {}\n", build["isa_active"].is_null() ? "none" : word(build["isa_active"]),
                 list(build["isa_sets"]));
    print_output("\nMachine\n  processor     {}\n  cores         {} allowed\n", word(machine["processor"]),
                 word(machine["cores_allowed"]));
    print_output("  caches        second level {}, last level {}\n", cache(machine["second_level_cache_bytes"]),
                 cache(machine["last_level_cache_bytes"]));
    print_output("  page          {} bytes\n", word(machine["page_bytes"]));
    const Json& topology = machine["topology"];
    print_output("  topology      {}\n",
                 topology["why_not"] == "" ? word(topology["summary"][0]) : word(topology["why_not"]));
    for (size_t i = 1; i < topology["summary"].size(); ++i) print_output("{:16}{}\n", "", word(topology["summary"][i]));
    for (const Json& note : topology["notes"]) print_output("{:16}{}\n", "", word(note));
    print_gpus(all["gpus"]);
    print_rdma(all["rdma"]);
    print_output("\nTransports\n");
    for (const Json& row : all["transports"]) {
        print_output("  {:<12}  {}\n", word(row["name"]), row["available"] ? "yes" : "no: " + word(row["why_not"]));
        for (const Json& rail : row["rails"])
            print_output("{:16}{}: {}{}\n", "", word(rail["name"]), word(rail["detail"]),
                         rail["why_not"] == "" ? "" : ", not used: " + word(rail["why_not"]));
    }
    print_output("\nAlgorithms\n");
    for (const Json& row : all["algorithms"]) {
        print_output("  {:<12}  {}: {}\n", word(row["name"]), word(row["collective"]), word(row["cost"]));
    }
    print_output("\nOptions: value, source, meaning\n");
    for (const Json& row : all["options"]) {
        std::string value = word(row["value"]);
        std::string also = row["aliases"].empty() ? "" : " (also " + list(row["aliases"]) + ")";
        print_output("  {:<22}  {:<12} {}{}\n", word(row["variable"]), value.empty() ? "(empty)" : value,
                     word(row["origin"]), also);
        print_output("  {:22}  {}\n", "", word(row["help"]));
    }
    flush_output();
    for (const Json& sentence : all["warnings"]) print_error("weft info: warning: {}\n", word(sentence));
    for (const Json& sentence : all["errors"]) print_error("weft info: {}\n", word(sentence));
}

}  // namespace

void add_info_command(CLI::App& app, int& exit_status) {
    auto as_json = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand(
        "info",
        "Tells version, build, machine, GPUs, transports, algorithms, and every option with its value and origin");
    command->add_flag("--json", *as_json, "For machines: one JSON object");
    CLI::App* explaining = add_explain_command(*command, exit_status);
    CLI::App* showing = command->add_subcommand("topology", "The machine as a tree, as `weft topology show` has it");
    make_topology_show(*showing, exit_status);
    command->callback([=, &exit_status] {
        if (explaining->parsed() || showing->parsed()) return;
        Json all = describe();
        if (*as_json) {
            print_output("{}\n", json_text(all, 2));
        } else {
            print(all);
        }
        exit_status = all["errors"].empty() ? 0 : 1;
    });
}

}  // namespace weft::internal::tools
