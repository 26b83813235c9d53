#include "src/gpu/domain/multicast/switched_buffers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/driver_tasks.hpp"

namespace weft::internal::cuda {

namespace {

// The steps of a state, in their order. Behind `offered` they are those of SwitchStep.
enum StateStep : uint64_t { offered = 1, mapped = offered + uint64_t(SwitchStep::map) + 1, over = 0xff };
constexpr int step_bits = 8;
constexpr uint64_t state_of(uint64_t number, uint64_t step) { return number << step_bits | step; }
constexpr uint64_t number_of(uint64_t state) { return state >> step_bits; }
constexpr uint64_t step_of(uint64_t state) { return state & over; }

// Tokens of windows have no such bit.
constexpr uint64_t token_of_buffer = uint64_t(1) << 63;
constexpr int64_t leave_patience_us = 10'000'000;  // other work on the device may delay a step

static_assert(sizeof(MulticastEntry) == sizeof(SwitchSlot::objects));

}  // namespace

SwitchedBuffers::~SwitchedBuffers() {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    for (Slot& slot : slots_) slot.part = {};
}

void SwitchedBuffers::add(int registration, const void* address, size_t bytes) {
    for (Slot& slot : slots_)
        if (slot.registration == registration) return void(++slot.users);
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const auto piece = SwitchedPiece::around(kernels_->driver(), address, bytes);
    if (!piece) return;
    const uint64_t number = ++numbers_;
    const size_t place = number % switch_slots;
    Slot& slot = slots_[place];
    if (slot.use.load(std::memory_order_acquire) != SlotUse::unused || segment_->aborted())
        return;  // pairs with serve()
    slot.registration = registration;
    slot.users = 1;
    slot.memory = *piece;
    shared(rank_, place).bytes.store(piece->bytes, std::memory_order_relaxed);
    shared(rank_, place).state.store(state_of(number, offered), std::memory_order_release);  // pairs with others()
    slot.use.store(SlotUse::open, std::memory_order_release);                                // pairs with serve()
}

// After a failure kernels of peers may still use the switch. The buffer then stays until all ranks have left.
void SwitchedBuffers::remove(int registration) {
    for (Slot& slot : slots_) {
        if (slot.registration != registration || --slot.users > 0) continue;
        slot.registration = -1;
        if (segment_->aborted()) return;
        slot.use.store(SlotUse::closing, std::memory_order_release);  // pairs with serve()
        return serve_soon();
    }
}

SwitchedMemory SwitchedBuffers::find(const void* address, size_t bytes) const {
    const auto place = reinterpret_cast<CUdeviceptr>(address);
    for (size_t i = 0; i < slots_.size(); ++i) {
        const Slot& slot = slots_[i];
        if (slot.users == 0 || place < slot.memory.address) continue;
        const CUdeviceptr offset = place - slot.memory.address;
        if (offset > slot.memory.bytes || bytes > slot.memory.bytes - offset) continue;
        const uint64_t behind = slot.address.load(std::memory_order_acquire);  // pairs with take_step()
        if (behind == 0) continue;
        const uint64_t number = number_of(shared(rank_, i).state.load(std::memory_order_relaxed));
        return {token_of_buffer | number << switched_offset_bits | offset,
                reinterpret_cast<std::byte*>(behind + offset)};
    }
    return {};
}

void SwitchedBuffers::look() {
    if (segment_->aborted()) return;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
        const SlotUse use = slots_[slot].use.load(std::memory_order_acquire);
        const uint64_t state = shared(rank_, slot).state.load(std::memory_order_acquire);
        // A closing one remains if there was no thread.
        if (use == SlotUse::closing ||
            (use == SlotUse::open && step_of(state) < mapped && others(slot, state) != Others::behind))
            return serve_soon();
    }
}

void SwitchedBuffers::stop() {
    stopped_.store(true);
    for (const int64_t until_us = now_us() + leave_patience_us; queued_.load() && now_us() < until_us;) usleep(100);
}

void SwitchedBuffers::serve_soon() {
    if (queued_.exchange(true)) return;
    const bool posted = post_driver_task([self = shared_from_this()] {
        try {
            self->serve();
        } catch (const std::exception&) {  // the remaining steps wait for the next look()
        }
        self->queued_.store(false);
    });
    if (!posted) queued_.store(false);
}

void SwitchedBuffers::serve() {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    for (size_t place = 0; place < slots_.size() && !stopped_.load(); ++place) {
        Slot& slot = slots_[place];
        const SlotUse use = slot.use.load(std::memory_order_acquire);  // pairs with add() and remove()
        if (use == SlotUse::open)
            while (advance(place)) {
            }
        if (use != SlotUse::closing) continue;
        slot.address.store(0, std::memory_order_relaxed);
        slot.part = {};
        std::atomic<uint64_t>& state = shared(rank_, place).state;
        state.store(state_of(number_of(state.load(std::memory_order_relaxed)), over), std::memory_order_release);
        slot.use.store(SlotUse::unused, std::memory_order_release);  // pairs with add()
    }
}

SwitchedBuffers::Others SwitchedBuffers::others(size_t slot, uint64_t state) const {
    bool ready = true;
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
        const uint64_t theirs = shared(peer, slot).state.load(std::memory_order_acquire);  // pairs with their steps
        if (number_of(theirs) > number_of(state) || (number_of(theirs) == number_of(state) && step_of(theirs) == over))
            return Others::gone;
        ready &= number_of(theirs) == number_of(state) && step_of(theirs) >= step_of(state);
    }
    return ready ? Others::ready : Others::behind;
}

bool SwitchedBuffers::alike(size_t slot) const {
    for (int peer = 0; peer < segment_->ranks(); ++peer)
        if (shared(peer, slot).bytes.load(std::memory_order_relaxed) != slots_[slot].memory.bytes) return false;
    return true;
}

bool SwitchedBuffers::advance(size_t slot) {
    std::atomic<uint64_t>& state = shared(rank_, slot).state;
    const uint64_t now = state.load(std::memory_order_relaxed), step = step_of(now);
    if (step >= mapped) return false;
    const Others there = others(slot, now);
    if (there == Others::behind) return false;
    if (there == Others::gone) return give_up(slot, "another rank has given it up"), false;
    if (step == offered && !alike(slot)) return give_up(slot, "the ranks' memory has several sizes"), false;
    if (const Status done = take_step(slot, step); !done) return give_up(slot, done.sentence()), false;
    if (step + 1 == mapped && rank_ == 0)
        WEFT_LOG_RANK(rank_, info, mem, "registered buffer {} of {} bytes lies behind the switch", number_of(now),
                      slots_[slot].memory.bytes);
    state.store(now + 1, std::memory_order_release);  // pairs with others()
    return true;
}

// A torn entry of the first rank, which has given the object up meanwhile, cannot be fetched.
Status SwitchedBuffers::take_step(size_t place, uint64_t step) {
    Slot& slot = slots_[place];
    if (step == offered) slot.part = SwitchedPiece(slot.memory);
    uint64_t words[sizeof(MulticastEntry) / sizeof(uint64_t)];
    for (size_t i = 0; i < std::size(words); ++i)
        words[i] = shared(0, place).objects[i].load(std::memory_order_relaxed);
    MulticastEntry created;
    memcpy(&created, words, sizeof created);
    WEFT_TRY(slot.part.take(SwitchStep(step - offered), kernels_->context(), segment_->ranks(), rank_, created));
    if (step == offered && rank_ == 0) {
        memcpy(words, &slot.part.entry(), sizeof words);
        for (size_t i = 0; i < std::size(words); ++i)
            shared(0, place).objects[i].store(words[i], std::memory_order_relaxed);
    }
    if (step + 1 == mapped) slot.address.store(slot.part.address(), std::memory_order_release);  // pairs with find()
    return ok();
}

void SwitchedBuffers::give_up(size_t slot, const std::string& why) {
    std::atomic<uint64_t>& state = shared(rank_, slot).state;
    const uint64_t number = number_of(state.load(std::memory_order_relaxed));
    WEFT_LOG_RANK(rank_, info, mem, "registered buffer {} cannot lie behind the switch: {}", number, why);
    slots_[slot].part = {};
    state.store(state_of(number, over), std::memory_order_release);
}

}  // namespace weft::internal::cuda
