// agreed_texts.hpp: the data of variable length that all ranks of a communicator share. It has rank 0's tuning, and
// descriptions of the machines by the hosts' leaders (on one host by rank 0's process). Other rooms write and parse
// these texts; here they are bytes. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/net/bytes.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// A host's description of its machine.
struct MachineText {
    std::string text = {};    // equal on identical machines; empty: unknown
    std::string domain = {};  // the NVLink domain that the host shares with others; empty: none

    bool operator==(const MachineText&) const = default;
    void write(ByteWriter& to) const;
    static MachineText read(ByteReader& from);
};

struct AgreedTexts {
    static constexpr size_t machine_bytes_most = 256 << 10;  // of one machine; longer texts count as unknown
    static constexpr size_t tuning_bytes_most = 512 << 10;

    std::string tuning;                    // empty: none
    std::vector<std::string> machines;     // without duplicates
    std::vector<int32_t> machine_of = {};  // by host: index into `machines`; -1: unknown
    std::vector<std::string> domains = {};
    std::vector<int32_t> domain_of = {};  // likewise; -1: none
    // The failure of a rank that could not describe its machine or read its tuning. All ranks join and then fail with
    // it, so that no rank waits for another.
    std::optional<Failure> refusal = {};

    MachineText machine(int host) const;
    // Of the next host. Texts that do not fit count as unknown.
    void add_machine(MachineText machine);

    void write(ByteWriter& to) const;
    static AgreedTexts read(ByteReader& from);

    // In the segment of a host, at most bytes_most bytes. Rank 0 writes them when it joins. With several hosts, each
    // host's leader writes them again once all ranks have joined.
    static constexpr size_t bytes_most = SegmentLayout::texts_bytes - sizeof(uint64_t);
    Status leave(Segment& segment) const;
    static AgreedTexts of(const Segment& segment);
};

}  // namespace weft::internal
