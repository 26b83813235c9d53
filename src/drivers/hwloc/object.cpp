// object.cpp: queries of hwloc's objects, for builds with and without the library.
#include "src/drivers/hwloc/hwloc.hpp"

namespace weft::internal::hwloc {

std::string Object::fact(const std::string& wanted) const {
    for (const auto& [name, value] : facts)
        if (name == wanted) return value;
    return {};
}

}  // namespace weft::internal::hwloc
