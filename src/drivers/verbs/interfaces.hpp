// interfaces.hpp: the network devices of this namespace, to find the one behind a GID of RoCE.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/drivers/verbs/gid.hpp"

namespace weft::internal::verbs {

// A value: the state when it was read. The kernel's number of a network device is of the namespace of the RDMA device. In
// another namespace the same number may be another network device, so addresses decide.
class Interfaces {
  public:
    static Interfaces read();
    // Sets the interface, its state and its prefix. `index` prefers one of several interfaces with the address.
    void describe(PortGid& gid, unsigned index) const;

  private:
    struct Row {
        std::string name;
        unsigned index = 0;
        bool up = false;
        std::array<uint8_t, 16> address{};  // as a GID
        int prefix_bits = 0;
    };
    std::vector<Row> rows_;
};

}  // namespace weft::internal::verbs
