#include "src/net/bytes.hpp"

#include <algorithm>

namespace weft::internal {

namespace {
constexpr size_t text_most = 1000, addresses_most = 32;
}

void ByteWriter::append(const void* data, size_t bytes) {
    const size_t before = bytes_.size();
    bytes_.resize(before + bytes);
    if (bytes > 0) memcpy(bytes_.data() + before, data, bytes);
}

void ByteWriter::put_text(std::string_view text) {
    text = text.substr(0, text_most);
    put(uint16_t(text.size()));
    append(text.data(), text.size());
}

void ByteWriter::put_bytes(std::string_view text) {
    put(uint32_t(text.size()));
    append(text.data(), text.size());
}

void ByteWriter::put_addresses(const std::vector<net::Address>& addresses) {
    const size_t count = std::min(addresses.size(), addresses_most);
    put(uint8_t(count));
    for (size_t i = 0; i < count; ++i) addresses[i].pack(bytes_);
}

// The id travels by name, so that another order of the table changes nothing.
void ByteWriter::put_failure(const Failure& failure) {
    put_text(row_of(failure.id).id);
    put(failure.facts);
    put_text(failure.sentence);
}

void ByteWriter::put_failure(const std::optional<Failure>& failure) {
    put(uint8_t(failure.has_value()));
    if (failure) put_failure(*failure);
}

std::string ByteReader::get_text() { return take(get<uint16_t>()); }
std::string ByteReader::get_bytes() { return take(get<uint32_t>()); }

Failure ByteReader::get_failure() {
    const auto error = error_named(get_text());
    const auto facts = get<FailureFacts>();
    return {error.value_or(error::internal_damaged), get_text(), facts};
}

std::optional<Failure> ByteReader::get_optional_failure() {
    if (get<uint8_t>() == 0) return {};
    return get_failure();
}

std::string ByteReader::take(size_t length) {
    if (!ok_ || size_t(end_ - at_) < length) return ok_ = false, std::string();
    std::string text(reinterpret_cast<const char*>(at_), length);
    at_ += length;
    return text;
}

ByteWriter ByteReader::rest() const {
    ByteWriter copy;
    copy.append(at_, size_t(end_ - at_));
    return copy;
}

std::vector<net::Address> ByteReader::get_addresses() {
    std::vector<net::Address> addresses;
    for (int left = get<uint8_t>(); left > 0; --left) {
        const auto address = net::Address::unpack(at_, end_);
        if (!address) return ok_ = false, addresses;
        addresses.push_back(*address);
    }
    return addresses;
}

}  // namespace weft::internal
