#include "topology/detect/container.hpp"

#include <charconv>
#include <mutex>

#include "src/base/control_groups.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal::topology {

namespace {

double ratio(const std::string& quota, const std::string& period) {
    double cores[2] = {};
    const std::string* texts[] = {&quota, &period};
    for (int i = 0; i < 2; ++i) {
        long long value = 0;
        const auto [end, error] = std::from_chars(texts[i]->data(), texts[i]->data() + texts[i]->size(), value);
        if (error != std::errc() || value <= 0) return 0;  // "max", -1: none
        cores[i] = double(value);
    }
    return cores[0] / cores[1];
}

// "200000 100000", "max 100000"
double of_version_2(SystemFiles& sys, const std::string& folder) {
    const std::string text = sys.text(folder + "/cpu.max").value_or("");
    const size_t space = text.find(' ');
    return space == std::string::npos ? 0 : ratio(text.substr(0, space), text.substr(space + 1));
}
double of_version_1(SystemFiles& sys, const std::string& folder) {
    return ratio(sys.text(folder + "/cpu.cfs_quota_us").value_or(""),
                 sys.text(folder + "/cpu.cfs_period_us").value_or(""));
}

}  // namespace

CpuQuota cpu_quota(SystemFiles& sys, SystemFiles& proc) {
    CpuQuota found;
    for (const ControlGroup& group : control_groups(proc.text("self/cgroup").value_or("0::/"), "cpu")) {
        const double here = group.version == 2 ? of_version_2(sys, group.folder) : of_version_1(sys, group.folder);
        if (here > 0 && (found.cores == 0 || here <= found.cores)) found = {sys.identity(group.folder), here};
    }
    return found;
}

CpuQuota cpu_quota() {
    struct CachedQuota {
        std::once_flag once;
        CpuQuota quota;
    };
    static PerProcess<CachedQuota> found;
    CachedQuota& own = found.get();
    std::call_once(own.once, [&] {
        SystemFiles sys("/sys"), proc("/proc");
        own.quota = cpu_quota(sys, proc);
    });
    return own.quota;
}

int usable_cores() {
    CpuShare share;
    share.add(allowed_cpus(), cpu_quota());
    return share.cores();
}

}  // namespace weft::internal::topology
