// resolution.hpp: looks up the addresses of a name without keeping anybody waiting: a resolver may take as long as it
// likes, and cannot be interrupted, so it runs on a thread of its own, which is left alone when nobody wants to know
// any more.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "src/base/result.hpp"
#include "src/net/address.hpp"

namespace weft::net {

// Thread-bound. An address in numbers is there at once, without a thread.
class Resolution {
  public:
    Resolution(const std::string& host, uint16_t port);
    // Nothing yet; what resolve() found, once.
    std::optional<Result<std::vector<Address>>> take();

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace weft::net
