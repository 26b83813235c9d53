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

// Thread-bound. An address in numbers is there at once, without a thread. `family` as resolve() has it.
class Resolution {
  public:
    Resolution(const std::string& host, uint16_t port, std::optional<int> family = {});
    // Nothing yet; what resolve() found, once. Waits for it, so long at most; below 0: without end.
    std::optional<Result<std::vector<Address>>> take(int wait_ms = 0);

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace weft::net
