// side.hpp: one end of a reliable connection over the driver, for tests: a device, a queue pair and a buffer.
#pragma once
#include <dlfcn.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/drivers/verbs/queue_pair.hpp"
#include "tests/patience.hpp"
#include "tests/verbs/fake/api.hpp"

namespace weft::internal::test {

// The functions of fake/api.hpp in the library that the driver opens.
class FakeVerbs {
  public:
    explicit FakeVerbs(const char* library)
        : handle_(dlopen(library, RTLD_NOW | RTLD_LOCAL)),
          do_(reinterpret_cast<decltype(&fake_ibverbs_do)>(dlsym(handle_, "fake_ibverbs_do"))),
          objects_(reinterpret_cast<decltype(&fake_ibverbs_objects)>(dlsym(handle_, "fake_ibverbs_objects"))),
          count_(reinterpret_cast<decltype(&fake_ibverbs_count)>(dlsym(handle_, "fake_ibverbs_count"))) {}
    void run(const std::string& statements) const {
        if (do_(statements.c_str()) != 0) throw std::runtime_error("the fake does not know " + statements);
    }
    int objects() const { return objects_(); }
    unsigned long count(const char* what) const { return count_(what); }

  private:
    void* handle_;
    decltype(&fake_ibverbs_do) do_;
    decltype(&fake_ibverbs_objects) objects_;
    decltype(&fake_ibverbs_count) count_;
};

template <class T>
T taken(Result<T> result) {
    if (!result) throw std::runtime_error(result.status().failure().text());
    return std::move(*result);
}
inline void done(const Status& status) {
    if (!status) throw std::runtime_error(status.failure().text());
}

constexpr int all_access = verbs::access::local_write | verbs::access::remote_write | verbs::access::remote_read;

// A process gives it to its peer.
struct SideAddress {
    verbs::PathEnd end;
    uint64_t memory = 0;
    uint32_t rkey = 0;
};

class Side {
  public:
    explicit Side(const char* library, const std::string& device, size_t bytes = 1 << 20,
                  const verbs::QueuePairOptions& options = {}, bool sleeps = false)
        : buffer(bytes) {
        auto functions = taken(verbs::load_transport_functions(library));
        auto devices = taken(verbs::DeviceList::read(functions));
        context = taken(devices.open(device.empty() ? devices.names().at(0) : device));
        domain = taken(verbs::ProtectionDomain::make(*context));
        queue = taken(verbs::CompletionQueue::make(*context, 4'096, sleeps));
        region.emplace(taken(verbs::MemoryRegion::host(*domain, buffer.data(), buffer.size(), all_access)));
        pair = taken(verbs::QueuePair::make(*domain, *queue, *queue, options));
    }

    // With the port's first GID of this class, or its first one.
    SideAddress address(verbs::GidClass wanted = verbs::GidClass::v2_ipv4) const {
        const auto port = taken(context->port(1));
        SideAddress made;
        made.end.host = "host";
        made.end.device = context->facts().name;
        made.end.link_layer = port.link_layer;
        made.end.mtu = port.mtu;
        made.end.lid = port.lid;
        made.end.pair = pair->number();
        made.end.sequence = 0x1000 + pair->number() % 0x1000;
        const auto gids = taken(context->gids(1));
        const auto found =
            std::find_if(gids.begin(), gids.end(), [&](const verbs::PortGid& gid) { return gid.kind() == wanted; });
        if (!gids.empty()) made.end.gid = found == gids.end() ? gids.front() : *found;
        made.memory = uintptr_t(buffer.data());
        made.rkey = region->rkey();
        return made;
    }
    Status connect(const SideAddress& peer, const verbs::PathOptions& options) {
        const SideAddress own = address();
        WEFT_TRY(pair->init(1, context->default_pkey_index(1), all_access));
        WEFT_TRY(pair->receive_from(own.end, peer.end, options));
        return pair->begin_sending(own.end, options);
    }

    // Returns the errno value. `at`: places in the two buffers.
    int send(int opcode, size_t bytes, uint64_t id, size_t at = 0, const SideAddress* peer = nullptr,
             size_t peer_at = 0, uint32_t imm = 0, uint32_t flags = verbs::send_flag::signaled) {
        verbs::abi::Sge piece{uintptr_t(buffer.data()) + at, uint32_t(bytes), region->lkey()};
        verbs::abi::SendRequest request{};
        request.wr_id = id;
        request.sg_list = &piece;
        request.num_sge = bytes > 0 ? 1 : 0;
        request.opcode = opcode;
        request.send_flags = flags;
        request.imm_data = __builtin_bswap32(imm);
        if (peer != nullptr) {
            request.remote_addr = peer->memory + peer_at;
            request.rkey = peer->rkey;
        }
        verbs::abi::SendRequest* failed = nullptr;
        return pair->post(&request, &failed);
    }
    int receive(size_t bytes, uint64_t id, size_t at = 0) {
        verbs::abi::Sge piece{uintptr_t(buffer.data()) + at, uint32_t(bytes), region->lkey()};
        verbs::abi::ReceiveRequest request{};
        request.wr_id = id;
        request.sg_list = &piece;
        request.num_sge = bytes > 0 ? 1 : 0;
        verbs::abi::ReceiveRequest* failed = nullptr;
        return pair->post(&request, &failed);
    }
    // Waits for the next completion.
    verbs::abi::Completion next() {
        verbs::abi::Completion completion{};
        for (int turns = 0;; ++turns) {
            const int count = queue->poll(&completion, 1);
            if (count < 0) throw std::runtime_error("the completion queue failed");
            if (count > 0) return completion;
            if (turns > 20) std::this_thread::sleep_for(std::chrono::microseconds(20));
            if (turns > 5'000'000) throw std::runtime_error("no completion");
        }
    }

    std::vector<std::byte> buffer;
    std::unique_ptr<verbs::Context> context;
    std::unique_ptr<verbs::ProtectionDomain> domain;
    std::unique_ptr<verbs::CompletionQueue> queue;
    std::optional<verbs::MemoryRegion> region;
    std::unique_ptr<verbs::QueuePair> pair;
};

// Short timeouts: 4.096 us << 8 = 1 ms, 3 times.
inline const verbs::PathOptions quick{.timeout = 10, .retries = 2};

inline void connect(Side& one, Side& other, const verbs::PathOptions& options = quick) {
    const SideAddress first = one.address(), second = other.address();
    done(one.connect(second, options));
    done(other.connect(first, options));
}

}  // namespace weft::internal::test
