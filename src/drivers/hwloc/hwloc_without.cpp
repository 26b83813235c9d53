// hwloc_without.cpp: the functions of hwloc.hpp in a build without hwloc's header: they fail.
#include "src/drivers/hwloc/hwloc.hpp"

namespace weft::internal::hwloc {

namespace {

Status none() {
    return fail(error::driver_disabled,
                "this build of Weft cannot use hwloc: hwloc.h of version 2 was not found when it was built, or "
                "-Dhwloc=disabled");
}

}  // namespace

Result<HwlocTopology> this_machine(const std::string&) { return none(); }
Result<HwlocTopology> read_xml(const std::string&, const std::string&) { return none(); }
Result<HwlocTopology> read_synthetic(const std::string&, const std::string&) { return none(); }

}  // namespace weft::internal::hwloc
