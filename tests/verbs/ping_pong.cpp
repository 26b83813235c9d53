// ping_pong.cpp: one of two processes that exchange messages over an RDMA device through Weft's driver:
//
//   verbs_ping_pong LIBRARY DEVICE SIDE FOLDER [MESSAGES [BYTES]]
//
// SIDE is 0 or 1. The processes meet by files in FOLDER. LIBRARY as in WEFT_VERBS_LIBRARY ("" is the real one), DEVICE ""
// is the first one. Prints the chosen pair of GIDs, and the time of a message. tools/rdma-vm runs it on Soft-RoCE.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/verbs/side.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::verbs;

namespace {

void write(const std::string& name, const std::string& text) {
    std::ofstream(name + ".draft") << text;
    if (std::rename((name + ".draft").c_str(), name.c_str()) != 0) throw std::runtime_error("cannot write " + name);
}

std::string read(const std::string& name) {
    std::stringstream text;
    if (!eventually([&] { return ::access(name.c_str(), R_OK) == 0; })) throw std::runtime_error("no " + name);
    text << std::ifstream(name).rdbuf();
    return text.str();
}

std::string text_of(const SideAddress& address, const std::vector<PortGid>& gids) {
    const PathEnd& end = address.end;
    std::string text = fmt::format("{} {} {} {} {} {} {} {} {}", end.device, end.link_layer, end.mtu, end.lid, end.pair,
                                   end.sequence, address.memory, address.rkey, gids.size());
    for (const PortGid& gid : gids) {
        text += fmt::format(" {} {} {}", gid.index, gid.type, gid.interface.empty() ? "-" : gid.interface);
        for (const uint8_t byte : gid.bytes) text += fmt::format(" {}", int(byte));
    }
    return text;
}

SideAddress read_address(const std::string& text, std::vector<PortGid>& gids) {
    std::istringstream words(text);
    SideAddress address;
    PathEnd& end = address.end;
    size_t count = 0;
    words >> end.device >> end.link_layer >> end.mtu >> end.lid >> end.pair >> end.sequence >> address.memory >>
        address.rkey >> count;
    gids.resize(count);
    for (PortGid& gid : gids) {
        words >> gid.index >> gid.type >> gid.interface;
        if (gid.interface == "-") gid.interface.clear();
        for (uint8_t& byte : gid.bytes) {
            int value = 0;
            words >> value;
            byte = uint8_t(value);
        }
    }
    if (words.fail()) throw std::runtime_error("the peer's address cannot be read");
    return address;
}

// Soft-RoCE never ends after 7 retries.
const PathOptions path_options{.timeout = 16, .retries = 6};

constexpr uint64_t received_id = 0, sent_id = 1, probe_id = 2;

// Sleeps until there is a completion. A queue pair that only receives never notices that the peer is dead: after a
// second of silence an empty write finds out.
abi::Completion next_asleep(Side& side, const SideAddress& peer) {
    abi::Completion completion{};
    for (bool probing = false;;) {
        int count = side.queue->poll(&completion, 1);
        if (count == 0) {
            done(side.queue->arm());
            count = side.queue->poll(&completion, 1);
        }
        if (count == 1 && completion.wr_id == probe_id && completion.status == wc::success) {
            probing = false;
            continue;
        }
        if (count == 1) return completion;
        pollfd wait{side.queue->fd(), POLLIN, 0};
        if (poll(&wait, 1, 1'000) == 0 && !std::exchange(probing, true) &&
            side.send(opcode::write, 0, probe_id, 0, &peer) != 0)
            throw std::runtime_error("no probe");
        side.queue->take_signals();
    }
}

// Waits for a message of the peer, or for the end of the own one, or both. Either may come early.
class Waiting {
  public:
    Waiting(Side& side, const SideAddress& own, const SideAddress& peer) : side_(side), own_(own), peer_(peer) {}
    void expect(int sent, int received) {
        sent_ -= sent;
        received_ -= received;
        while (sent_ < 0 || received_ < 0) {
            const abi::Completion completion = next_asleep(side_, peer_);
            if (completion.status != wc::success)
                throw std::runtime_error(completion_error(completion, own_.end, peer_.end, path_options).sentence());
            ++(completion.wr_id == sent_id ? sent_ : received_);
        }
    }

  private:
    Side& side_;
    const SideAddress &own_, &peer_;
    int sent_ = 0, received_ = 0;  // completions that nobody waited for; negative: waited for
};

// The peer's message, which must be complete, and a receive request for the next one. The target may change as soon as
// this side sends again.
void check_message(Side& side, size_t bytes, int first) {
    for (size_t at = 0; at < bytes; at += 64)
        if (side.buffer[bytes + at] != std::byte(first + int(at / 64)))
            throw std::runtime_error(fmt::format("message {} has wrong data at {}", first, at));
    if (side.receive(0, received_id) != 0) throw std::runtime_error("no receive request");
}

int run(const std::string& library, const std::string& device, int number, const std::string& folder, int messages,
        size_t bytes) {
    Side side(library.c_str(), device, 2 * bytes, {}, true);
    SideAddress own = side.address();
    own.end.host = "side" + std::to_string(number);
    const std::vector<PortGid> gids = taken(side.context->gids(1));
    write(folder + "/address" + std::to_string(number), text_of(own, gids));
    std::vector<PortGid> peer_gids;
    SideAddress peer = read_address(read(folder + "/address" + std::to_string(1 - number)), peer_gids);
    peer.end.host = "side" + std::to_string(1 - number);
    const GidPair pair = taken(choose_gid_pair(gids, peer_gids, {}, own.end.device, peer.end.device));
    own.end.gid = gids[pair.own];
    peer.end.gid = peer_gids[pair.peer];
    fmt::print("{} to {}: {}\n", described(own.end), described(peer.end), pair.reason);

    done(side.pair->init(1, side.context->default_pkey_index(1), all_access));
    if (const auto ece = side.pair->ece()) (void)side.pair->set_ece(*ece);
    if (side.receive(0, received_id) != 0) throw std::runtime_error("no receive request");
    done(side.pair->receive_from(own.end, peer.end, path_options));
    done(side.pair->begin_sending(own.end, path_options));
    write(folder + "/ready" + std::to_string(number), "ready");
    (void)read(folder + "/ready" + std::to_string(1 - number));

    // The first half of the buffer is sent, the second half is the peer's target.
    Waiting waiting(side, own, peer);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < messages; ++i) {
        for (size_t at = 0; at < bytes; at += 64) side.buffer[at] = std::byte(number + i + int(at / 64));
        if (number == 1) {
            waiting.expect(0, 1);
            check_message(side, bytes, i);
        }
        const uint32_t flags =
            send_flag::signaled | (bytes <= size_t(side.pair->inline_bytes()) ? send_flag::inline_data : 0);
        if (side.send(opcode::write_with_imm, bytes, sent_id, 0, &peer, bytes, uint32_t(i), flags) != 0)
            throw std::runtime_error("no send request");
        waiting.expect(1, number == 0);
        if (number == 0) check_message(side, bytes, i + 1);
    }
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    fmt::print("{} messages of {} bytes: {:.1f} us one way\n", messages, bytes, us / messages / 2);
    write(folder + "/over" + std::to_string(number), "over");
    (void)read(folder + "/over" + std::to_string(1 - number));
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 5) return std::fprintf(stderr, "verbs_ping_pong LIBRARY DEVICE SIDE FOLDER [MESSAGES [BYTES]]\n"), 2;
    try {
        return run(arguments[1], arguments[2], std::atoi(arguments[3]), arguments[4],
                   count > 5 ? std::atoi(arguments[5]) : 100, count > 6 ? size_t(std::atoi(arguments[6])) : 4'096);
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "verbs_ping_pong: %s\n", exception.what());
        return 1;
    }
}
