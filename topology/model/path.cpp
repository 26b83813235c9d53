#include "topology/model/path.hpp"

#include <algorithm>
#include <iterator>

namespace weft::internal::topology {

static constexpr const char* names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                        "P2C", "PXN", "PHB", "SYS", "NET", "-"};

const char* name_of(PathClass path_class) { return names[size_t(path_class)]; }

PathClass path_class_named(std::string_view name) {
    const auto found = std::find(std::begin(names), std::end(names) - 1, name);
    return PathClass(found - std::begin(names));
}

PathClass class_of(const Link& link, NodeKind one, NodeKind other) {
    switch (link.kind) {
        case LinkKind::nvlink: return PathClass::nvl;
        case LinkKind::c2c: return PathClass::c2c;
        case LinkKind::sys: return PathClass::sys;
        case LinkKind::net: return PathClass::loc;
        case LinkKind::local:
        case LinkKind::pci: break;
    }
    if (one == NodeKind::pci && other == NodeKind::pci) return PathClass::pxb;
    if (link.kind == LinkKind::local) return PathClass::loc;
    return one == NodeKind::cpu || other == NodeKind::cpu ? PathClass::phb : PathClass::pix;
}

}  // namespace weft::internal::topology
