#include "transports/ucx/door.hpp"

#include <cstring>

#include "src/net/socket.hpp"

namespace weft::internal::ucx {

static constexpr uint32_t address_most = 1u << 20;  // bytes; a larger size is not from a worker

Door::Door(std::shared_ptr<tcp::TcpConnection> connection, const std::vector<std::byte>& own)
    : connection_(std::move(connection)), own_(sizeof(uint32_t) + own.size()) {
    const auto bytes = uint32_t(own.size());
    memcpy(own_.data(), &bytes, sizeof bytes);
    memcpy(own_.data() + sizeof bytes, own.data(), own.size());
}

Result<bool> Door::send() {
    while (sent_ < own_.size()) {
        auto sent = net::write_some(connection_->socket(0), own_.data() + sent_, own_.size() - sent_);
        if (!sent) return sent.take_status();
        if (*sent == 0) return false;
        sent_ += *sent;
    }
    return true;
}

Result<bool> Door::receive() {
    for (;;) {
        const bool sized = received_ >= sizeof peer_bytes_;
        if (received_ == sizeof peer_bytes_ && peer_.empty()) {
            if (peer_bytes_ == 0 || peer_bytes_ > address_most)
                return fail(error::internal_damaged, "the other end tells a UCX address of {} bytes", peer_bytes_);
            peer_.resize(peer_bytes_);
        }
        std::byte* const to = sized ? peer_.data() + (received_ - sizeof peer_bytes_)
                                    : reinterpret_cast<std::byte*>(&peer_bytes_) + received_;
        const size_t left = (sized ? sizeof peer_bytes_ + peer_.size() : sizeof peer_bytes_) - received_;
        if (left == 0) return true;
        auto got = net::read_some(connection_->socket(0), to, left);
        if (!got) return got.take_status();
        if (*got == 0) return false;
        received_ += *got;
    }
}

Result<bool> Door::exchange() {
    if (!connection_) return true;
    WEFT_TRY(connection_->connect());
    if (!connection_->connected()) return false;
    auto sent = send();
    if (!sent) return sent;
    auto received = receive();
    if (!received) return received;
    if (!*sent || !*received) return false;
    connection_.reset();
    return true;
}

void Door::add_descriptors(Wakeups& wakeups) const {
    if (!connection_) return;
    if (!connection_->connected()) return connection_->add_descriptors(wakeups.descriptors);
    const bool sends = sent_ < own_.size();
    wakeups.descriptors.push_back({connection_->socket(0), short(POLLIN | (sends ? POLLOUT : 0)), 0});
}

}  // namespace weft::internal::ucx
