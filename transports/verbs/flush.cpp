#include "transports/verbs/flush.hpp"

#include <unistd.h>

#include "src/base/clock.hpp"

namespace weft::internal::verbs {

namespace {

// A device that was removed may never answer. The retries of others end before.
constexpr int64_t answer_us = 10'000'000;

}  // namespace

Result<std::unique_ptr<FlushPair>> FlushPair::make(const Device& device, int port, int pkey_index) {
    std::unique_ptr<FlushPair> made(new FlushPair);
    auto region = MemoryRegion::host(*device.domain, made->target_, sizeof made->target_, access::local_write);
    if (!region) return region.take_status();
    made->region_ = std::make_unique<MemoryRegion>(std::move(*region));
    auto queue = CompletionQueue::make(*device.context, 2, false);
    if (!queue) return queue.take_status();
    made->queue_ = std::move(*queue);
    auto pair = QueuePair::make(
        *device.domain, *made->queue_, *made->queue_,
        {.send_requests = 1, .receive_requests = 1, .send_sges = 1, .receive_sges = 1, .inline_bytes = 0});
    if (!pair) return pair.take_status();
    made->pair_ = std::move(*pair);
    WEFT_TRY(made->pair_->init(port, pkey_index, access::local_write | access::remote_read));
    return made;
}

Status FlushPair::connect(const PathEnd& own, const PathOptions& path) {
    own_ = own;
    own_.pair = pair_->number();
    path_ = path;
    WEFT_TRY(pair_->receive_from(own_, own_, path_));
    return pair_->begin_sending(own_, path_);
}

Status FlushPair::begin(uint64_t address, uint32_t key) {
    abi::Sge piece{uintptr_t(target_), 1, region_->lkey()};
    abi::SendRequest request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode::read;
    request.send_flags = send_flag::signaled;
    request.remote_addr = address;
    request.rkey = key;
    abi::SendRequest* failed = nullptr;
    if (const int error = pair_->post(&request, &failed))
        return fail(error::verbs_call, "{} refuses to flush what it wrote to a GPU: {}", described(own_),
                    errno_text(error));
    return ok();
}

Result<bool> FlushPair::ended() {
    abi::Completion completion;
    const int count = queue_->poll(&completion, 1);
    if (count < 0) return fail(error::verbs_call, "{} fails to report completions", described(own_));
    if (count == 0) return false;
    if (completion.status != wc::success)
        return fail(completion_error(completion, own_, own_, path_), "what was written to a GPU cannot be flushed: {}",
                    completion_error(completion, own_, own_, path_).sentence());
    return true;
}

Status Flushes::connect(const PathOptions& path) {
    for (const OfDevice& each : pairs_) WEFT_TRY(each.pair->connect(each.own, path));
    return ok();
}

Result<bool> Flushes::shows(Incoming& incoming, uint64_t message) {
    if (!incoming.needs_flush() || message < incoming.visible) return true;
    if (pairs_.empty())
        return fail(
            error::internal_state,
            "rank {} receives from rank {} into the memory of a GPU that needs flushes, and their link has none",
            incoming.shape.self, incoming.shape.peer);
    WEFT_TRY(advance(incoming.arrival(message).order, *incoming.shape.given_memory));
    while (incoming.ready(incoming.visible) && incoming.arrival(incoming.visible).order <= covered_) ++incoming.visible;
    return message < incoming.visible;
}

// Takes the reads that are complete.
Status Flushes::collect() {
    for (; on_their_way_ > 0; --on_their_way_) {
        auto ended = pairs_[pairs_.size() - on_their_way_].pair->ended();
        if (!ended) return ended.take_status();
        if (!*ended) return ok();
        if (on_their_way_ == 1) covered_ = covers_;
    }
    return ok();
}

Status Flushes::advance(uint64_t wanted, const Registered& memory) {
    WEFT_TRY(collect());
    if (on_their_way_ > 0 && now_us() - begun_us_ > answer_us)
        return fail(error::verbs_broken, "an RDMA device does not answer a flush of what it wrote to a GPU");
    if (on_their_way_ > 0 || covered_ >= wanted) return ok();
    begun_us_ = now_us();
    covers_ = arrivals_;
    on_their_way_ = pairs_.size();
    for (const OfDevice& each : pairs_)
        WEFT_TRY(each.pair->begin(uintptr_t(memory.range().data), memory.rkey(each.device)));
    return ok();
}

void Flushes::settle() {
    constexpr int64_t patience_us = 1'000'000;
    for (const int64_t deadline = now_us() + patience_us; collect() && on_their_way_ > 0 && now_us() < deadline;)
        usleep(20);
}

}  // namespace weft::internal::verbs
