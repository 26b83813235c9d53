#include "transports/verbs/lanes/probe_page.hpp"

#include <utility>

namespace weft::internal::verbs {

Result<std::unique_ptr<ProbePage>> ProbePage::make(const ProtectionDomain& domain) {
    std::unique_ptr<ProbePage> made(new ProbePage);
    auto region = MemoryRegion::host(domain, made->page_, bytes, access::local_write | access::remote_write);
    if (!region) return region.take_status();
    made->region_.emplace(std::move(*region));
    return made;
}

}  // namespace weft::internal::verbs
