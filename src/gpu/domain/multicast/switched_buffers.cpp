#include "src/gpu/domain/multicast/switched_buffers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/driver_tasks.hpp"
#include "src/gpu/domain/multicast/switch_numbers.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t leave_patience_us = 10'000'000;  // other work on the device may delay a step

static_assert(sizeof(MulticastEntry) == sizeof(SwitchSlot::objects));

}  // namespace

SwitchedBuffers::~SwitchedBuffers() {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    for (Slot& slot : slots_) slot.part = {};
}

bool SwitchedBuffers::Slot::is_around(const void* address, size_t size) const {
    const auto place = reinterpret_cast<CUdeviceptr>(address);
    if (users == 0 || place < memory.address) return false;
    const CUdeviceptr offset = place - memory.address;
    return offset <= memory.bytes && size <= memory.bytes - offset;
}

// Equal tokens must mean one object, so no two slots of a rank have one.
SwitchedBuffers::Slot* SwitchedBuffers::take_slot(uint64_t number, const VmmPiece& piece) {
    size_t place = slots_.size();
    for (size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[i];
        const bool unused = slot.use.load(std::memory_order_acquire) == SlotUse::unused;  // pairs with serve()
        // A buffer that was given up needs no place, though its graph lives on. A later call gets the place.
        if (slot.users > 0 && is_captured(slot.number) &&
            step_of(shared(rank_, i).state.load(std::memory_order_acquire)) == step_over)
            close(slot);
        if (!unused && token_of(slots_[i].number) == token_of(number)) return nullptr;
        if (unused && place == slots_.size()) place = i;
    }
    if (place == slots_.size() || segment_->aborted()) return nullptr;
    Slot& slot = slots_[place];
    slot.number = number;
    slot.registration = -1;
    slot.users = 0;
    slot.recycled = false;
    slot.memory = piece;
    shared(rank_, place).bytes.store(piece.bytes, std::memory_order_relaxed);
    shared(rank_, place).state.store(state_of(number, step_offered), std::memory_order_release);  // pairs with others()
    slot.use.store(SlotUse::open, std::memory_order_release);                                     // pairs with serve()
    return &slot;
}

// After a failure kernels of peers may still use the switch. The buffer then stays until all ranks have left.
void SwitchedBuffers::close(Slot& slot) {
    slot.users = 0;
    slot.registration = -1;
    if (segment_->aborted()) return;
    slot.use.store(SlotUse::closing, std::memory_order_release);  // pairs with serve()
    serve_soon();
}

void SwitchedBuffers::pass(uint64_t number) {
    segment_->row(rank_).gpu.switch_passed[is_captured(number)].store(number, std::memory_order_release);
}

void SwitchedBuffers::add(int registration, const void* address, size_t bytes) {
    for (Slot& slot : slots_)
        if (slot.registration == registration) return void(++slot.users);
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const auto piece = SwitchedPiece::around(kernels_->driver(), address, bytes);
    if (!piece) return;
    if (Slot* const slot = take_slot(++numbers_, *piece)) {
        slot->registration = registration;
        slot->users = 1;
    }
    pass(numbers_);
}

void SwitchedBuffers::remove(int registration) {
    for (Slot& slot : slots_)
        if (slot.registration == registration && --slot.users == 0) return close(slot);
}

// Each capture counts anew, so ranks that gave one up at different calls agree again.
uint64_t SwitchedBuffers::number_call(uint64_t capture_id) {
    if (capture_id != numbered_capture_ || ++calls_ == captured_calls_max) {
        numbered_capture_ = capture_id;
        ++captures_;
        calls_ = 0;
    }
    return captured_number(captures_, calls_);
}

uint64_t SwitchedBuffers::capture(uint64_t number, const void* address, size_t bytes) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const auto facts = describe_pointer(kernels_->driver(), address);
    if (!facts || facts->buffer_id == 0) return 0;  // other memory at the address could not be told apart
    for (size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[i];
        if (!slot.is_around(address, bytes) || slot.recycled) continue;
        if (!is_captured(slot.number)) return 0;
        if (step_of(shared(rank_, i).state.load(std::memory_order_acquire)) == step_over)
            close(slot);  // all may try again
        else if (slot.buffer_id == facts->buffer_id)
            return slot.number;
        else
            slot.recycled = true;
    }
    const auto piece = SwitchedPiece::around(kernels_->driver(), address, bytes);
    Slot* const slot = piece ? take_slot(number, *piece) : nullptr;
    if (!slot) return 0;
    slot->buffer_id = facts->buffer_id;
    return number;
}

void SwitchedBuffers::hold(uint64_t number) {
    for (Slot& slot : slots_)
        if (slot.number == number) ++slot.users;
}

void SwitchedBuffers::release(uint64_t number) {
    for (Slot& slot : slots_)
        if (slot.number == number && slot.users > 0 && --slot.users == 0) return close(slot);
}

bool SwitchedBuffers::is_coming(uint64_t number) const {
    for (size_t i = 0; i < slots_.size(); ++i)
        if (slots_[i].number == number && slots_[i].users > 0)
            return slots_[i].address.load(std::memory_order_acquire) == 0 &&  // pairs with take_step()
                   step_of(shared(rank_, i).state.load(std::memory_order_acquire)) != step_over;
    return false;
}

// Of several around the bytes it is the one with the lowest number, so that all ranks find the same one.
SwitchedMemory SwitchedBuffers::find(const void* address, size_t bytes, bool captured) const {
    const Slot* first = nullptr;
    for (const Slot& slot : slots_)
        if (slot.is_around(address, bytes) && !slot.recycled && (captured || !is_captured(slot.number)) &&
            slot.address.load(std::memory_order_acquire) != 0 &&  // pairs with take_step()
            (!first || slot.number < first->number))
            first = &slot;
    if (!first) return {};
    const uint64_t offset = reinterpret_cast<CUdeviceptr>(address) - first->memory.address;
    return {token_of(first->number) | offset,
            reinterpret_cast<std::byte*>(first->address.load(std::memory_order_relaxed) + offset)};
}

void SwitchedBuffers::look() {
    if (segment_->aborted()) return;
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
        const SlotUse use = slots_[slot].use.load(std::memory_order_acquire);
        const uint64_t state = shared(rank_, slot).state.load(std::memory_order_acquire);
        // A closing one remains if there was no thread.
        if (use == SlotUse::closing ||
            (use == SlotUse::open && step_of(state) < step_mapped && others(state) != Others::behind))
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
    // The closing ones first: their memory may have a new slot.
    for (size_t place = 0; place < slots_.size() && !stopped_.load(); ++place) {
        Slot& slot = slots_[place];
        if (slot.use.load(std::memory_order_acquire) != SlotUse::closing) continue;  // pairs with close()
        slot.address.store(0, std::memory_order_relaxed);
        slot.part = {};
        std::atomic<uint64_t>& state = shared(rank_, place).state;
        state.store(state_of(number_of(state.load(std::memory_order_relaxed)), step_over), std::memory_order_release);
        slot.use.store(SlotUse::unused, std::memory_order_release);  // pairs with take_slot()
    }
    for (size_t place = 0; place < slots_.size(); ++place)
        if (slots_[place].use.load(std::memory_order_acquire) == SlotUse::open)  // pairs with take_slot()
            while (!stopped_.load() && advance(place)) {
            }
}

SwitchSlot* SwitchedBuffers::slot_of(int rank, uint64_t number) const {
    for (SwitchSlot& slot : segment_->row(rank).gpu.switched)
        if (number_of(slot.state.load(std::memory_order_acquire)) == number) return &slot;  // pairs with their steps
    return nullptr;
}

// A rank takes a slot before it passes the number, so the slots are read last.
SwitchedBuffers::Others SwitchedBuffers::others(uint64_t state) const {
    const uint64_t number = number_of(state);
    bool ready = true;
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
        const bool passed = segment_->row(peer).gpu.switch_passed[is_captured(number)].load(
                                std::memory_order_acquire) >= number;  // pairs with pass()
        const SwitchSlot* const slot = slot_of(peer, number);
        const uint64_t theirs = slot ? slot->state.load(std::memory_order_acquire) : 0;
        const bool there = number_of(theirs) == number;
        if (there ? step_of(theirs) == step_over : passed) return Others::gone;
        ready &= there && step_of(theirs) >= step_of(state);
    }
    return ready ? Others::ready : Others::behind;
}

bool SwitchedBuffers::alike(size_t slot, uint64_t number) const {
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
        const SwitchSlot* const theirs = slot_of(peer, number);
        if (!theirs || theirs->bytes.load(std::memory_order_relaxed) != slots_[slot].memory.bytes) return false;
    }
    return true;
}

bool SwitchedBuffers::advance(size_t slot) {
    std::atomic<uint64_t>& state = shared(rank_, slot).state;
    const uint64_t now = state.load(std::memory_order_relaxed), step = step_of(now);
    if (step >= step_mapped) return false;
    const Others there = others(now);
    if (there == Others::behind) return false;
    if (there == Others::gone) return give_up(slot, "another rank has given it up"), false;
    if (step == step_offered && !alike(slot, number_of(now)))
        return give_up(slot, "the ranks' memory has several sizes"), false;
    if (const Status done = take_step(slot, step); !done) return give_up(slot, done.sentence()), false;
    if (step + 1 == step_mapped && rank_ == 0)
        WEFT_LOG_RANK(rank_, info, mem, "{} of {} bytes lies behind the switch", name_of(number_of(now)),
                      slots_[slot].memory.bytes);
    state.store(now + 1, std::memory_order_release);  // pairs with others()
    return true;
}

// The first rank may give the object up meanwhile, and use the slot for another one.
Status SwitchedBuffers::take_step(size_t place, uint64_t step) {
    Slot& slot = slots_[place];
    const uint64_t number = number_of(shared(rank_, place).state.load(std::memory_order_relaxed));
    if (step == step_offered) slot.part = SwitchedPiece(slot.memory);
    SwitchSlot* const first = slot_of(0, number);
    uint64_t words[sizeof(MulticastEntry) / sizeof(uint64_t)] = {};
    for (size_t i = 0; first && i < std::size(words); ++i)
        words[i] = first->objects[i].load(std::memory_order_acquire);  // pairs with the store below
    if (!first || number_of(first->state.load(std::memory_order_relaxed)) != number)
        return fail(error::gpu_peer_access, "rank 0 has given it up");
    MulticastEntry created;
    memcpy(&created, words, sizeof created);
    WEFT_TRY(slot.part.take(SwitchStep(step - step_offered), kernels_->context(), segment_->ranks(), rank_, created));
    if (step == step_offered && rank_ == 0) {
        memcpy(words, &slot.part.entry(), sizeof words);
        for (size_t i = 0; i < std::size(words); ++i) first->objects[i].store(words[i], std::memory_order_release);
    }
    if (step + 1 == step_mapped)
        slot.address.store(slot.part.address(), std::memory_order_release);  // pairs with find()
    return ok();
}

void SwitchedBuffers::give_up(size_t slot, const std::string& why) {
    std::atomic<uint64_t>& state = shared(rank_, slot).state;
    const uint64_t number = number_of(state.load(std::memory_order_relaxed));
    WEFT_LOG_RANK(rank_, info, mem, "{} cannot lie behind the switch: {}", name_of(number), why);
    slots_[slot].part = {};
    state.store(state_of(number, step_over), std::memory_order_release);
}

}  // namespace weft::internal::cuda
