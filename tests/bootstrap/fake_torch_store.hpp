// fake_torch_store.hpp: as much of PyTorch's TCPStore under test as Weft speaks to.
#pragma once
#include <condition_variable>
#include <cstring>
#include <map>

#include "tests/bootstrap/fake_server.hpp"

namespace weft::internal::test {

template <class Number>
std::string raw(Number value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class Number>
std::optional<Number> read_number(const Line& line) {
    const auto bytes = line.bytes(sizeof(Number));
    if (!bytes) return {};
    Number value;
    memcpy(&value, bytes->data(), sizeof value);
    return value;
}
inline std::optional<std::string> read_text(const Line& line) {
    const auto size = read_number<uint64_t>(line);
    return size ? line.bytes(size_t(*size)) : std::nullopt;
}

// The part of PyTorch's TCPStore daemon that Weft speaks to.
class FakeTorchStore {
  public:
    ~FakeTorchStore() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
    }
    uint16_t port() const { return server_.port(); }
    size_t keys() {
        std::lock_guard lock(mutex_);
        return values_.size();
    }
    // Returns when a key whose name holds `part` has a value that begins so; false: the store ends first.
    bool await(const std::string& part, const std::string& begin) {
        std::unique_lock lock(mutex_);
        const auto there = [&] {
            for (const auto& [key, value] : values_)
                if (key.find(part) != std::string::npos && value.rfind(begin, 0) == 0) return true;
            return false;
        };
        changed_.wait(lock, [&] { return over_ || there(); });
        return !over_;
    }

  private:
    void serve(const Line& line) {
        if (line.bytes(1) != std::string(1, '\0') || read_number<uint32_t>(line) != 0x3C85F7CEu) return;
        while (const auto query = line.bytes(1)) {
            const char what = (*query)[0];
            if (what == 5 || what == 6) read_number<uint64_t>(line);  // how many keys; Weft asks for one
            const auto key = read_text(line);
            if (!key) return;
            std::unique_lock lock(mutex_);
            switch (what) {
                case 1: values_[*key] = *read_text(line), changed_.notify_all(); break;
                case 3:
                    if (!values_.count(*key)) return;  // as PyTorch's does
                    line.send(raw(uint64_t(values_[*key].size())) + values_[*key]);
                    break;
                case 5: line.send(std::string(1, values_.count(*key) ? '\0' : '\1')); break;
                case 6:
                    changed_.wait(lock, [&] { return over_ || values_.count(*key); });
                    if (over_) return;
                    line.send(std::string(1, '\0'));
                    break;
                case 8: line.send(raw(int64_t(values_.erase(*key)))); break;
                default: return;
            }
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    bool over_ = false;
    TcpServer server_{[this](const Line& line) { serve(line); }};
};

}  // namespace weft::internal::test
