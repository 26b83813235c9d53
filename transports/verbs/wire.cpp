#include "transports/verbs/wire.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace weft::internal::verbs {

namespace {

constexpr uint32_t blob_magic = 0x61766677;  // "wfva"
constexpr size_t address_words = 4;          // words before the addresses
constexpr size_t address_bytes = (Blob::of_transport - address_words) * sizeof(uint64_t);
constexpr uint32_t ports_most = 64, gids_most = 1'024, pairs_most = 64;

void put_gid(ByteWriter& to, const PortGid& gid) {
    to.put(gid.bytes);
    to.put(int32_t(gid.index));
    to.put(int32_t(gid.type));
    to.put_text(gid.interface);
    to.put(uint8_t(gid.interface_down));
    to.put(int32_t(gid.prefix_bits));
}

void put_area(ByteWriter& to, const Area& area) {
    to.put(area.address);
    to.put(area.stride);
    to.put(uint32_t(area.keys.size()));
    for (const uint32_t key : area.keys) to.put(key);
}

bool get_area(ByteReader& from, Area& area) {
    area.address = from.get<uint64_t>();
    area.stride = from.get<uint64_t>();
    const auto keys = from.get<uint32_t>();
    if (keys > ports_most) return false;
    for (uint32_t i = 0; i < keys; ++i) area.keys.push_back(from.get<uint32_t>());
    return from.ok();
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

void write_pairs(ByteWriter& to, const PairLists& pairs) {
    to.put(uint32_t(pairs.size()));
    for (const auto& of_rail : pairs) {
        to.put(uint32_t(of_rail.size()));
        for (const PairNumber& pair : of_rail) to.put(pair);
    }
}

std::optional<PairLists> read_pairs(ByteReader& from) {
    const auto rails = from.get<uint32_t>();
    if (rails > ports_most) return {};
    PairLists pairs(rails);
    for (auto& of_rail : pairs) {
        const auto count = from.get<uint32_t>();
        if (count > pairs_most) return {};
        for (uint32_t i = 0; i < count; ++i) of_rail.push_back(from.get<PairNumber>());
    }
    if (!from.ok()) return {};
    return pairs;
}

void PortOffer::write(ByteWriter& to) const {
    to.put(device);
    to.put_text(end.host);
    to.put_text(end.device);
    to.put(int32_t(end.port));
    to.put(int32_t(end.link_layer));
    to.put(int32_t(end.mtu));
    to.put(end.lid);
    to.put(uint8_t(end.needs_grh));
    to.put(int32_t(rail));
    to.put(int32_t(mbps));
    to.put(uint32_t(gids.size()));
    for (const PortGid& gid : gids) put_gid(to, gid);
}

std::optional<PortOffer> PortOffer::read(ByteReader& from) {
    PortOffer port;
    port.device = from.get<uint32_t>();
    port.end.host = from.get_text();
    port.end.device = from.get_text();
    port.end.port = from.get<int32_t>();
    port.end.link_layer = from.get<int32_t>();
    port.end.mtu = from.get<int32_t>();
    port.end.lid = from.get<uint16_t>();
    port.end.needs_grh = from.get<uint8_t>() != 0;
    port.rail = from.get<int32_t>();
    port.mbps = from.get<int32_t>();
    const auto gids = from.get<uint32_t>();
    if (gids > gids_most) return {};
    for (uint32_t i = 0; i < gids && from.ok(); ++i) port.gids.push_back(gid_of(from));
    if (!from.ok()) return {};
    return port;
}

void Offer::write(ByteWriter& to) const {
    to.put(expected_version);
    to.put(token);
    to.put(peer_token);
    to.put(int32_t(rank));
    to.put(int32_t(rails_used));
    to.put(uint8_t(service_level));
    to.put(uint8_t(traffic_class));
    to.put(uint32_t(ports.size()));
    for (const PortOffer& port : ports) port.write(to);
    to.put(uint32_t(rails.size()));
    for (const Rail& each : rails) to.put(each);
    write_pairs(to, pairs);
}

std::optional<Offer> Offer::read(ByteReader& from) {
    if (from.get<uint32_t>() != expected_version) return {};
    Offer offer;
    offer.token = from.get<uint64_t>();
    offer.peer_token = from.get<uint64_t>();
    offer.rank = from.get<int32_t>();
    offer.rails_used = from.get<int32_t>();
    offer.service_level = from.get<uint8_t>() & 0xf;
    offer.traffic_class = from.get<uint8_t>();
    const auto ports = from.get<uint32_t>();
    if (ports > ports_most || offer.rails_used < 1) return {};
    for (uint32_t i = 0; i < ports; ++i) {
        auto port = PortOffer::read(from);
        if (!port) return {};
        offer.ports.push_back(std::move(*port));
    }
    const auto rails = from.get<uint32_t>();
    if (rails > ports_most) return {};
    for (uint32_t i = 0; i < rails; ++i) offer.rails.push_back(from.get<Rail>());
    auto pairs = read_pairs(from);
    if (!pairs || !from.at_end()) return {};
    offer.pairs = std::move(*pairs);
    return offer;
}

void Want::write(ByteWriter& to) const {
    to.put(number);
    to.put(connection);
    to.put(depth);
    to.put(slot_bytes);
    put_area(to, offers);
}

std::optional<Want> Want::read(ByteReader& from) {
    Want want;
    want.number = from.get<uint32_t>();
    want.connection = from.get<uint32_t>();
    want.depth = from.get<int32_t>();
    want.slot_bytes = from.get<uint64_t>();
    if (!get_area(from, want.offers) || !from.at_end()) return {};
    return want;
}

void Slots::write(ByteWriter& to) const {
    to.put(connection);
    put_area(to, headers);
    put_area(to, data);
}

std::optional<Slots> Slots::read(ByteReader& from) {
    Slots slots;
    slots.connection = from.get<uint32_t>();
    if (!get_area(from, slots.headers) || !get_area(from, slots.data) || !from.at_end()) return {};
    if (slots.headers.keys.empty() || slots.data.keys.empty()) return {};
    return slots;
}

}  // namespace weft::internal::verbs
