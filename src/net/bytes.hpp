// bytes.hpp: messages between hosts, laid out one value behind the other.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "src/base/result.hpp"
#include "src/net/address.hpp"

namespace weft::internal {

// Numbers and texts in the sender's byte order: all hosts of a communicator run the same build.
class ByteWriter {
  public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(&value, sizeof value);
    }
    void append(const void* data, size_t bytes);
    void put_text(std::string_view text);   // a sentence or a name; cut at 1000 bytes
    void put_bytes(std::string_view text);  // complete
    void put_addresses(const std::vector<net::Address>& addresses);
    void put_failure(const Failure& failure);
    void put_failure(const std::optional<Failure>& failure);
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

// Reads the bytes of a ByteWriter. Past the end it returns zeros, and ok() is false.
class ByteReader {
  public:
    ByteReader(const std::byte* data, size_t bytes) : at_(data), end_(data + bytes) {}
    template <class T>
    T get() {
        T value{};
        if (size_t(end_ - at_) < sizeof value) return ok_ = false, at_ = end_, value;
        memcpy(static_cast<void*>(&value), at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    std::string get_text();
    std::string get_bytes();
    std::vector<net::Address> get_addresses();
    Failure get_failure();
    std::optional<Failure> get_optional_failure();
    bool ok() const { return ok_; }
    size_t left() const { return size_t(end_ - at_); }
    bool at_end() const { return ok_ && at_ == end_; }
    // The bytes that were not read yet.
    ByteWriter rest() const;

  private:
    std::string take(size_t length);

    const std::byte* at_;
    const std::byte* end_;
    bool ok_ = true;
};

}  // namespace weft::internal
