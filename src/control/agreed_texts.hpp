// agreed_texts.hpp: what all ranks of a communicator know alike and has no fixed length: costs that rank 0 was tuned to,
// and the machines that the ranks are on, as each host's leader (on one host rank 0's process) describes its own.
// Whoever makes these texts and reads them is above: here they are bytes. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/net/bytes.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// What a host tells of its machine.
struct MachineText {
    std::string text = {};    // equal of hosts that are alike; empty: unknown
    std::string domain = {};  // of NVLink, that it is in with other hosts; empty: none

    bool operator==(const MachineText&) const = default;
    void write(ByteWriter& to) const;
    static MachineText read(ByteReader& from);
};

struct AgreedTexts {
    static constexpr size_t machine_bytes_most = 256 << 10;  // of one; longer ones are left out, as if unknown
    static constexpr size_t tuning_bytes_most = 512 << 10;

    std::string tuning;                    // empty: none
    std::vector<std::string> machines;     // different ones
    std::vector<int32_t> machine_of = {};  // by host: index into these; -1: it is unknown
    std::vector<std::string> domains = {};
    std::vector<int32_t> domain_of = {};  // likewise; -1: none
    // Why somebody who was to write these cannot. All meet all the same, so that all fail with it, and nobody waits.
    std::optional<Failure> refusal = {};

    MachineText machine(int host) const;
    // Of the next host. What there is no room for is unknown.
    void add_machine(MachineText machine);

    void write(ByteWriter& to) const;
    static AgreedTexts read(ByteReader& from);

    // In the segment of a host: see Segment::write_texts().
    Status leave(Segment& segment) const;
    static AgreedTexts of(const Segment& segment);
};

}  // namespace weft::internal
