#include "src/drivers/verbs/report.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/drivers/verbs/refusal.hpp"

namespace weft::internal::verbs {

namespace {

namespace fs = std::filesystem;

// The transport's queues and slots take some MiB for each connection.
constexpr uint64_t memlock_least_bytes = 64 << 20;

// "mlx5_0, mlx5_1": the devices that the kernel shows, whether or not this process may open them.
std::string devices_in(const std::string& sys) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(sys + "/class/infiniband", error))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

// The reason why libibverbs has no device to use.
std::string no_device_reason(const std::string& sys, const std::string& dev) {
    const std::string shown = devices_in(sys);
    if (shown.empty()) return "this host has no RDMA device";
    std::error_code error;
    if (!fs::exists(dev + "/infiniband", error))
        return fmt::format(
            "{} shows {}, but {}/infiniband is missing: start the container with --device=/dev/infiniband, and with "
            "--network=host or an RDMA plugin",
            sys, shown, dev);
    return fmt::format("{} shows {}, but libibverbs has no driver for them: install its providers (ibverbs-providers)",
                       sys, shown);
}

// The reason that all ports share; otherwise it sends the reader to the list.
std::string no_port_reason(const std::vector<IbPort>& ports) {
    const std::string& first = ports.front().why_not;
    const bool same =
        std::all_of(ports.begin(), ports.end(), [&](const IbPort& port) { return port.why_not == first; });
    if (same) return first;
    std::string text = "no port can be used";
    for (const IbPort& port : ports) text += fmt::format("; {}: {}", port.name(), port.why_not);
    return text;
}

}  // namespace

IbReport describe_ib(const Options& options, const std::string& sys, const std::string& dev) {
    IbReport report;
    Result<IbSettings> settings = read_ib_settings(options);
    if (!settings) {
        report.why_not = settings.status().sentence();
        report.status = settings.take_status();
        return report;
    }
    report.notes = settings->warnings;
    report.gdr_level = settings->gdr_level;
    // Without a device libibverbs writes warnings to standard error.
    if (options.verbs_library.empty() && devices_in(sys).empty()) {
        report.why_not = no_device_reason(sys, dev);
        return report;
    }
    Result<Functions> functions = load_transport_functions(options.verbs_library);
    if (!functions) {
        report.why_not = functions.status().sentence();
        if (const std::string shown = devices_in(sys); !shown.empty() && options.verbs_library.empty())
            report.why_not += fmt::format(": {} shows {}; install libibverbs (rdma-core)", sys, shown);
        return report;
    }
    Result<DeviceList> devices = DeviceList::read(*functions);
    if (!devices) {
        report.why_not = devices.status().sentence();
        return report;
    }
    report.ports = read_ports(*devices);
    report.status = admit_ports(*settings, report.ports);
    if (report.ports.empty())
        report.why_not = no_device_reason(sys, dev);
    else if (std::none_of(report.ports.begin(), report.ports.end(), [](const IbPort& port) { return port.usable(); }))
        report.why_not = no_port_reason(report.ports);
    if (std::string limit = memlock_note(memlock_least_bytes); !limit.empty() && !report.ports.empty())
        report.notes.push_back(std::move(limit));
    return report;
}

}  // namespace weft::internal::verbs
