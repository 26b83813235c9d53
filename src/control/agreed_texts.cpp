#include "src/control/agreed_texts.hpp"

#include <algorithm>
#include <cstring>

namespace weft::internal {

namespace {

// All machines must fit into a segment and a frame, also for thousands of hosts.
constexpr size_t machines_bytes_most = 512 << 10;
constexpr size_t machines_most = 1024;
// Names of domains are short, and many hosts share one.
constexpr size_t domains_most = 4096, domains_bytes_most = 256 << 10;

const std::string& text_at(const std::vector<std::string>& texts, const std::vector<int32_t>& index_of, int host) {
    static const std::string none;
    const int32_t index = size_t(host) < index_of.size() ? index_of[size_t(host)] : -1;
    return index < 0 || size_t(index) >= texts.size() ? none : texts[size_t(index)];
}

// Returns the index of the text; -1: there is no room.
int32_t add_once(std::vector<std::string>& texts, std::string text, size_t most, size_t bytes_most) {
    const auto known = std::find(texts.begin(), texts.end(), text);
    if (known != texts.end()) return int32_t(known - texts.begin());
    size_t used = text.size();
    for (const std::string& each : texts) used += each.size();
    if (text.empty() || used > bytes_most || texts.size() == most) return -1;
    texts.push_back(std::move(text));
    return int32_t(texts.size() - 1);
}

void put_texts(ByteWriter& to, const std::vector<std::string>& texts, const std::vector<int32_t>& index_of) {
    to.put(uint32_t(texts.size()));
    for (const std::string& text : texts) to.put_bytes(text);
    to.put(uint32_t(index_of.size()));
    to.append(index_of.data(), index_of.size() * sizeof(int32_t));
}

void get_texts(ByteReader& from, std::vector<std::string>& texts, std::vector<int32_t>& index_of) {
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left) texts.push_back(from.get_bytes());
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left) index_of.push_back(from.get<int32_t>());
}

}  // namespace

void MachineText::write(ByteWriter& to) const {
    to.put_bytes(text);
    to.put_bytes(domain);
}

MachineText MachineText::read(ByteReader& from) {
    MachineText machine;
    machine.text = from.get_bytes();
    machine.domain = from.get_bytes();
    return machine;
}

MachineText AgreedTexts::machine(int host) const {
    return {text_at(machines, machine_of, host), text_at(domains, domain_of, host)};
}

void AgreedTexts::add_machine(MachineText machine) {
    if (machine.text.size() > machine_bytes_most) machine.text.clear();
    machine_of.push_back(add_once(machines, std::move(machine.text), machines_most, machines_bytes_most));
    domain_of.push_back(add_once(domains, std::move(machine.domain), domains_most, domains_bytes_most));
}

void AgreedTexts::write(ByteWriter& to) const {
    to.put_bytes(tuning);
    put_texts(to, machines, machine_of);
    put_texts(to, domains, domain_of);
    to.put_failure(refusal);
}

AgreedTexts AgreedTexts::read(ByteReader& from) {
    AgreedTexts texts;
    texts.tuning = from.get_bytes();
    get_texts(from, texts.machines, texts.machine_of);
    get_texts(from, texts.domains, texts.domain_of);
    texts.refusal = from.get_optional_failure();
    return texts;
}

Status AgreedTexts::leave(Segment& segment) const {
    ByteWriter bytes;
    write(bytes);
    const uint64_t length = bytes.bytes().size();
    if (length > bytes_most)
        return fail(error::internal_state, "the texts of a communicator have {} bytes; there is room for {}", length,
                    bytes_most);
    const size_t offset = SegmentLayout{segment.ranks(), 0}.texts();
    WEFT_TRY(segment.write(offset + sizeof length, bytes.bytes().data(), length));
    return segment.write(offset, &length, sizeof length);
}

AgreedTexts AgreedTexts::of(const Segment& segment) {
    const std::byte* place = segment.memory().data() + SegmentLayout{segment.ranks(), 0}.texts();
    uint64_t length = 0;
    memcpy(&length, place, sizeof length);
    ByteReader from(place + sizeof length, std::min<uint64_t>(length, bytes_most));
    return read(from);
}

}  // namespace weft::internal
