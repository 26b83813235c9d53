#include "src/bootstrap/agreed_texts.hpp"

#include <algorithm>

namespace weft {

namespace {

// Of all machines, so that a segment and a frame have room for them, and for what thousands of hosts say of themselves.
constexpr size_t machines_bytes_most = 512 << 10;
constexpr size_t machines_most = 1024;

}  // namespace

const std::string& AgreedTexts::machine(int host) const {
    static const std::string none;
    const int32_t index = size_t(host) < machine_of.size() ? machine_of[size_t(host)] : -1;
    return index < 0 || size_t(index) >= machines.size() ? none : machines[size_t(index)];
}

void AgreedTexts::add_machine(std::string text) {
    const auto known = std::find(machines.begin(), machines.end(), text);
    size_t used = text.size();
    for (const std::string& each : machines) used += each.size();
    if (known != machines.end()) {
        machine_of.push_back(int32_t(known - machines.begin()));
    } else if (text.empty() || text.size() > machine_bytes_most || used > machines_bytes_most ||
               machines.size() == machines_most) {
        machine_of.push_back(-1);
    } else {
        machine_of.push_back(int32_t(machines.size()));
        machines.push_back(std::move(text));
    }
}

void AgreedTexts::write(ByteWriter& to) const {
    to.put_bytes(tuning);
    to.put(uint32_t(machines.size()));
    for (const std::string& text : machines) to.put_bytes(text);
    to.put(uint32_t(machine_of.size()));
    to.append(machine_of.data(), machine_of.size() * sizeof(int32_t));
    to.put_failure(refusal);
}

AgreedTexts AgreedTexts::read(ByteReader& from) {
    AgreedTexts texts;
    texts.tuning = from.get_bytes();
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left)
        texts.machines.push_back(from.get_bytes());
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left)
        texts.machine_of.push_back(from.get<int32_t>());
    texts.refusal = from.get_optional_failure();
    return texts;
}

Status AgreedTexts::leave(HostGroup& group) const {
    ByteWriter bytes;
    write(bytes);
    return group.write_texts(bytes.bytes().data(), bytes.bytes().size());
}

AgreedTexts AgreedTexts::of(const HostGroup& group) {
    const auto bytes = group.texts();
    ByteReader from(bytes.data(), bytes.size());
    return read(from);
}

}  // namespace weft
