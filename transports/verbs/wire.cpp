#include "transports/verbs/wire.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace weft::internal::verbs {

namespace {

constexpr uint32_t blob_magic = 0x61766677;  // "wfva"
constexpr size_t address_words = 4;          // words before the addresses
constexpr size_t address_bytes = (Blob::of_transport - address_words) * sizeof(uint64_t);
constexpr uint32_t rails_most = 64, gids_most = 1'024, pairs_most = 64;

void put_gid(ByteWriter& to, const PortGid& gid) {
    to.put(gid.bytes);
    to.put(int32_t(gid.index));
    to.put(int32_t(gid.type));
    to.put_text(gid.interface);
    to.put(uint8_t(gid.interface_down));
    to.put(int32_t(gid.prefix_bits));
}

PortGid gid_of(ByteReader& from) {
    PortGid gid;
    gid.bytes = from.get<std::array<uint8_t, 16>>();
    gid.index = from.get<int32_t>();
    gid.type = from.get<int32_t>();
    gid.interface = from.get_text();
    gid.interface_down = from.get<uint8_t>() != 0;
    gid.prefix_bits = from.get<int32_t>();
    return gid;
}

void write_rail(ByteWriter& to, const RailOffer& rail) {
    to.put(rail.device);
    to.put_text(rail.end.host);
    to.put_text(rail.end.device);
    to.put(int32_t(rail.end.port));
    to.put(int32_t(rail.end.link_layer));
    to.put(int32_t(rail.end.mtu));
    to.put(rail.end.lid);
    to.put(uint8_t(rail.end.needs_grh));
    to.put(uint32_t(rail.gids.size()));
    for (const PortGid& gid : rail.gids) put_gid(to, gid);
    to.put(uint32_t(rail.pairs.size()));
    for (const RailOffer::Pair& pair : rail.pairs) to.put(pair);
}

// False: the count cannot be right.
bool read_rail(ByteReader& from, RailOffer& rail) {
    rail.device = from.get<uint32_t>();
    rail.end.host = from.get_text();
    rail.end.device = from.get_text();
    rail.end.port = from.get<int32_t>();
    rail.end.link_layer = from.get<int32_t>();
    rail.end.mtu = from.get<int32_t>();
    rail.end.lid = from.get<uint16_t>();
    rail.end.needs_grh = from.get<uint8_t>() != 0;
    const auto gids = from.get<uint32_t>();
    if (gids > gids_most) return false;
    for (uint32_t i = 0; i < gids && from.ok(); ++i) rail.gids.push_back(gid_of(from));
    const auto pairs = from.get<uint32_t>();
    if (pairs > pairs_most) return false;
    for (uint32_t i = 0; i < pairs && from.ok(); ++i) rail.pairs.push_back(from.get<RailOffer::Pair>());
    return from.ok();
}

}  // namespace

uint64_t make_token() {
    static std::atomic<uint32_t> made{0};
    return uint64_t(net::process_mark()) << 32 | made.fetch_add(1, std::memory_order_relaxed);
}

Blob ListenAddress::blob() const {
    Blob blob;
    std::vector<std::byte> packed;
    uint64_t count = 0;
    for (const net::Address& address : addresses) {
        if (packed.size() + address.packed_bytes() > address_bytes) break;
        address.pack(packed);
        ++count;
    }
    blob.words[0] = token;
    blob.words[1] = blob_magic | count << 32;
    blob.words[2] = uint32_t(depth) | uint64_t(number) << 32;
    blob.words[3] = slot_bytes;
    memcpy(blob.words + address_words, packed.data(), packed.size());
    return blob;
}

std::optional<ListenAddress> ListenAddress::of(const Blob& blob) {
    if (uint32_t(blob.words[1]) != blob_magic) return {};
    ListenAddress made{.token = blob.words[0],
                       .number = uint32_t(blob.words[2] >> 32),
                       .depth = int(uint32_t(blob.words[2])),
                       .slot_bytes = blob.words[3],
                       .addresses = {}};
    const auto* at = reinterpret_cast<const std::byte*>(blob.words + address_words);
    for (uint64_t left = blob.words[1] >> 32; left > 0; --left) {
        const auto address = net::Address::unpack(at, reinterpret_cast<const std::byte*>(&blob + 1));
        if (!address) return {};
        made.addresses.push_back(*address);
    }
    if (made.addresses.empty()) return {};
    return made;
}

void Offer::write(ByteWriter& to) const {
    to.put(expected_version);
    to.put(token);
    to.put(peer_token);
    to.put(int32_t(rank));
    to.put(uint32_t(rails.size()));
    for (const RailOffer& rail : rails) write_rail(to, rail);
    to.put(uint32_t(gids.size()));
    for (const auto& [answering, other] : gids) {
        to.put(answering);
        to.put(other);
    }
}

std::optional<Offer> Offer::read(ByteReader& from) {
    if (from.get<uint32_t>() != expected_version) return {};
    Offer offer;
    offer.token = from.get<uint64_t>();
    offer.peer_token = from.get<uint64_t>();
    offer.rank = from.get<int32_t>();
    const auto rails = from.get<uint32_t>();
    if (rails > rails_most) return {};
    offer.rails.resize(rails);
    for (RailOffer& rail : offer.rails)
        if (!read_rail(from, rail)) return {};
    const auto gids = from.get<uint32_t>();
    if (gids > rails_most) return {};
    for (uint32_t i = 0; i < gids; ++i) {
        const auto answering = from.get<uint32_t>();
        offer.gids.emplace_back(answering, from.get<uint32_t>());
    }
    if (!from.at_end()) return {};
    return offer;
}

void Slots::write(ByteWriter& to) const {
    to.put(connection);
    for (const Area* area : {&headers, &data}) {
        to.put(area->address);
        to.put(area->stride);
        to.put(uint32_t(area->keys.size()));
        for (const uint32_t key : area->keys) to.put(key);
    }
}

std::optional<Slots> Slots::read(ByteReader& from) {
    Slots slots;
    slots.connection = from.get<uint32_t>();
    for (Area* area : {&slots.headers, &slots.data}) {
        area->address = from.get<uint64_t>();
        area->stride = from.get<uint64_t>();
        const auto keys = from.get<uint32_t>();
        if (keys < 1 || keys > rails_most) return {};
        for (uint32_t i = 0; i < keys; ++i) area->keys.push_back(from.get<uint32_t>());
    }
    if (!from.at_end()) return {};
    return slots;
}

}  // namespace weft::internal::verbs
