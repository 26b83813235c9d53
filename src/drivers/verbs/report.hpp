// report.hpp: whether this process can use RDMA, and why not, for `weft info`.
#pragma once
#include <string>
#include <vector>

#include "src/base/options.hpp"
#include "src/drivers/verbs/ports.hpp"

namespace weft::internal::verbs {

struct IbReport {
    std::string why_not;             // not empty: no port can be used, for this reason
    std::vector<IbPort> ports;       // also those that are not used
    std::vector<std::string> notes;  // limits of this process, and values that are left aside
    Status status = ok();            // what is wrong with the user's settings
    GdrLevel gdr_level = GdrLevel::pxb;
};

// `dev` and `sys` are the folders of the kernel, others in tests. Takes milliseconds with each device. Reentrant.
IbReport describe_ib(const Options& options, const std::string& sys = "/sys", const std::string& dev = "/dev");

}  // namespace weft::internal::verbs
