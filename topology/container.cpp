#include "topology/container.hpp"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <sstream>

#include "src/base/per_process.hpp"

namespace weft::topology {

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

// Of a group and all above it. In a container the path may be one of the host's, which is not there: then the root's
// counts, as which the container's own group is mounted.
template <class Read>
void least(CpuQuota& found, SystemFiles& sys, const std::string& mount, std::string path, Read read) {
    for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        if (const double here = read(sys, mount + path); here > 0 && (found.cores == 0 || here <= found.cores))
            found = {sys.identity(mount + path), here};
        if (path.empty()) return;
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
}

bool has(const std::string& controllers, const std::string& wanted) {
    return ("," + controllers + ",").find("," + wanted + ",") != std::string::npos;
}

}  // namespace

CpuQuota cpu_quota(SystemFiles& sys, SystemFiles& proc) {
    CpuQuota found;
    // "4:cpu,cpuacct:/docker/1234", "0::/user.slice"
    std::istringstream lines(proc.text("self/cgroup").value_or("0::/"));
    for (std::string line; std::getline(lines, line);) {
        const size_t one = line.find(':'), other = line.find(':', one + 1);
        if (one == std::string::npos || other == std::string::npos) continue;
        const std::string controllers = line.substr(one + 1, other - one - 1), path = line.substr(other + 1);
        if (path.find("..") != std::string::npos) continue;  // outside of what is mounted here
        if (controllers.empty()) {
            for (const char* mount : {"fs/cgroup", "fs/cgroup/unified"}) least(found, sys, mount, path, of_version_2);
        } else if (has(controllers, "cpu")) {
            for (const char* mount : {"fs/cgroup/cpu", "fs/cgroup/cpu,cpuacct"})
                least(found, sys, mount, path, of_version_1);
        }
    }
    return found;
}

CpuQuota cpu_quota() {
    struct Found {
        std::once_flag once;
        CpuQuota quota;
    };
    static PerProcess<Found> found;
    Found& own = found.get();
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

}  // namespace weft::topology
