#include "transports/nccl_net/device_trials.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal::nccl_net {

namespace {

// A connection of a device to itself.
class Loopback {
  public:
    explicit Loopback(const Net& net) : net_(net) {}
    Loopback(const Loopback&) = delete;
    Loopback& operator=(const Loopback&) = delete;
    ~Loopback() {
        if (sending) net_.close_send(sending);
        if (receiving) net_.close_recv(receiving);
        if (listening_) net_.close_listen(listening_);
    }
    Status make(const Device& device);

    void* sending = nullptr;
    void* receiving = nullptr;

  private:
    static constexpr int64_t patience_us = 1'000'000;
    static constexpr unsigned apart_us = 100;

    const Net& net_;
    void* listening_ = nullptr;
};

Status Loopback::make(const Device& device) {
    alignas(std::max_align_t) unsigned char handle[abi::handle_bytes] = {};
    abi::Answer answer = net_.listen(device.index, handle, &listening_);
    for (const int64_t until_us = now_us() + patience_us; answer == abi::success && listening_; usleep(apart_us)) {
        if (!sending) answer = net_.connect(device.index, handle, &sending);
        if (answer == abi::success && !receiving) answer = net_.accept_comm(listening_, &receiving);
        if (answer == abi::success && sending && receiving) return ok();
        if (now_us() > until_us) break;
    }
    return fail(error::transport_broken,
                "{} of the network plugin {} does not connect to itself, which a test of device "
                "memory needs: {}",
                device.name, net_.name(), answer == abi::success ? "it is not ready after 1 s" : error_text(answer));
}

Status register_for_trial(const Net& net, const Device& device, Registrations& registrations) {
    Loopback loopback(net);
    WEFT_TRY(loopback.make(device));
    Status refused;
    for (void* const comm : {loopback.sending, loopback.receiving}) {
        auto handle = registrations.in(comm);
        if (!handle && refused) refused = handle.take_status();
    }
    for (void* const comm : {loopback.sending, loopback.receiving}) registrations.end(comm);
    return refused;
}

}  // namespace

Status DeviceTrials::ask(size_t nic, Registrations& registrations, const MemoryRange& range) {
    const Device& device = net_.devices()[nic];
    if (!device.why_not.empty()) return fail(error::transport_broken, "{}", device.why_not);
    if ((device.pointers & (abi::cuda_pointer | abi::dma_buf_pointer)) == 0)
        return fail(error::transport_broken, "it takes no device memory");
    Answer& answer = answers_[{nic, range.device, range.dma_buf >= 0}];
    const size_t bytes = std::max<size_t>(range.bytes, 1);
    if (bytes <= answer.taken) return ok();
    if (bytes >= answer.refused) return answer.why.copy();
    Status tried = register_for_trial(net_, device, registrations);
    if (tried) {
        answer.taken = bytes;
        return ok();
    }
    answer.refused = bytes;
    answer.why = tried.copy();
    WEFT_LOG(info, net, "{} does not serve the memory of device {}: {}", device.name, range.device, tried.sentence());
    return tried;
}

Result<Refusals> DeviceTrials::refusals(Registrations& registrations, const MemoryRange& range) {
    std::lock_guard lock(mutex_);
    Refusals refusals;
    Status first;
    bool any = false;
    for (size_t nic = 0; nic < net_.devices().size(); ++nic) {
        Status answer = ask(nic, registrations, range);
        refusals.push_back(answer ? std::string() : answer.sentence());
        any = any || answer;
        if (!answer && first) first = std::move(answer);
    }
    if (!any) return first;
    return refusals;
}

Result<std::unique_ptr<RegisteredMemory>> register_range(const Net& net, DeviceTrials& trials,
                                                         const MemoryRange& range) {
    Fd dma_buf;
    if (range.kind == RangeKind::device && range.dma_buf >= 0) {
        // The plugin gets it at the first use in a comm; the caller closes its own before.
        dma_buf = Fd::duplicate(range.dma_buf);
        if (!dma_buf)
            return fail(error::transport_broken, "the descriptor of a dma-buf cannot be copied: {}", errno_text(errno));
    }
    auto registrations = std::make_shared<Registrations>(net, range, std::move(dma_buf));
    Refusals refusals;
    if (range.kind == RangeKind::device) {
        auto answers = trials.refusals(*registrations, range);
        if (!answers) return answers.take_status();
        refusals = std::move(*answers);
    }
    return std::unique_ptr<RegisteredMemory>(new NetMemory(range, std::move(registrations), std::move(refusals)));
}

}  // namespace weft::internal::nccl_net
