#include "src/train/local_sgd.hpp"

#include <algorithm>
#include <span>

#include "src/base/datatype.hpp"
#include "src/train/agreement.hpp"
#include "src/train/local_arithmetic.hpp"

namespace weft::internal::train {

Result<std::shared_ptr<LocalSgd>> LocalSgd::make(Status own, std::vector<Tensor> parameters, LocalSettings settings,
                                                 std::unique_ptr<MemorySpace> space, weftComm_t comm) {
    std::shared_ptr<LocalSgd> made(new LocalSgd(std::move(parameters), std::move(settings), std::move(space)));
    // Before the communicator's first call, so that peers can map the memory.
    if (own) own = made->reserve();
    auto peers = Peers::make(comm);
    if (!peers) return own ? peers.take_status() : std::move(own);
    made->peers_ = std::move(*peers);
    std::string text = described(made->settings_);
    for (size_t i = 0; i < made->parameters_.size(); ++i)
        add_line(text, "parameter", i, made->parameters_[i].name, made->parameters_[i].facts);
    WEFT_TRY(check_agreement(*made->peers_, std::move(text), std::move(own)));
    Status started = made->ended_by(made->start());
    Status done = made->space_->synchronize();  // no work uses the caller's memory after a failure
    WEFT_TRY(std::move(started));
    WEFT_TRY(made->ended_by(std::move(done)));
    return made;
}

LocalSgd::LocalSgd(std::vector<Tensor> parameters, LocalSettings settings, std::unique_ptr<MemorySpace> space)
    : space_(std::move(space)), parameters_(std::move(parameters)), settings_(std::move(settings)) {}

LocalSgd::~LocalSgd() {
    queue_.reset();
    peers_.reset();
    if (space_) (void)space_->synchronize();  // copies may still use the parameters
}

Status LocalSgd::reserve() {
    std::vector<TensorFacts> facts;
    for (int i = 0; i < parameter_count(); ++i) facts.push_back(facts_of(i));
    layout_ = lay_out_fragments(settings_, facts);
    WEFT_TRY(prepare_local_arithmetic(*space_));
    const auto keep = [](FlatBuffer& buffer, Result<FlatBuffer> memory) -> Status {
        if (!memory) return memory.take_status();
        buffer = std::move(*memory);
        return ok();
    };
    WEFT_TRY(keep(message_, FlatBuffer::allocate(*space_, layout_.buckets.bytes)));
    for (FlatBuffer* buffer : {&anchor_, &momentum_})
        if (settings_.outer) WEFT_TRY(keep(*buffer, FlatBuffer::allocate(*space_, layout_.buckets.bytes)));
    const size_t words = std::max(parameters_.size(), layout_.fragment_of.size());
    WEFT_TRY(keep(found_, FlatBuffer::allocate(*space_, words * sizeof(uint32_t))));
    WEFT_TRY(keep(found_on_host_, FlatBuffer::allocate_on_host(*space_, words * sizeof(uint32_t))));
    auto queue = space_->on_device() ? LaunchQueue::at_once() : LaunchQueue::start();
    if (!queue) return queue.take_status();
    queue_ = std::move(*queue);
    return ok();
}

Status LocalSgd::start() {
    WEFT_TRY(broadcast_values(*peers_, *space_, parameters_, 0));
    for (int i = 0; settings_.outer && i < parameter_count(); ++i) {
        const Tensor& tensor = parameters_[size_t(i)];
        WEFT_TRY(widen(*space_, part_of(anchor_, i), tensor.data, tensor.facts.count, tensor.facts.type));
    }
    return ok();
}

TensorFacts LocalSgd::facts_of(int parameter) const {
    const TensorFacts& facts = parameters_[size_t(parameter)].facts;
    return {settings_.outer ? state_type(facts.type) : facts.type, facts.count};
}

void* LocalSgd::part_of(const FlatBuffer& buffer, int parameter) const {
    return buffer.data() ? buffer.data() + layout_.buckets.places[size_t(parameter)].begin_bytes : nullptr;
}

Status LocalSgd::usable() const {
    if (!failure_) return failure_.copy();
    if (!peers_->aborted()) return ok();
    return fail(error::train_aborted, "weftTrainLocalAbort has ended this object: destroy it and make a new one");
}

Status LocalSgd::ended_by(Status status) {
    if (status || !failure_) return status;  // the first failure has its sentence already
    if (peers_->aborted())
        status = fail(error::train_aborted, "weftTrainLocalAbort has ended this object: {}", status.sentence());
    else if (status.id() == error::abort_remote)
        status = fail(status, "another rank ended its training object: {}", status.sentence());
    failure_ = status.copy();
    peers_->abort();  // the other ranks wait for this one
    return status;
}

Status LocalSgd::await() {
    WEFT_TRY(ended_by(queue_->wait()));
    if (!space_->on_device()) return ok();
    WEFT_TRY(ended_by(space_->synchronize()));
    return ended_by(peers_->state());
}

Status LocalSgd::settle() {
    if (!usable()) return ok();
    return await();
}

void LocalSgd::end_by_exception() noexcept {
    try {
        (void)ended_by({error::internal_exception, "an exception has ended a call of this object"});
    } catch (...) {
        peers_->abort();
    }
}

weftTrainMode_t LocalSgd::mode() const {
    return !settings_.outer && steps_ < settings_.warmup ? weftTrainSynchronize : weftTrainAccumulate;
}

Status LocalSgd::step(bool& changed, weftStream_t callers) {
    changed = false;
    WEFT_TRY(usable());
    const uint64_t step = steps_++;
    int launched = -1, applied = -1;
    if (settings_.outer) {
        launched = launched_after(settings_, steps_);
        applied = applied_after(settings_, steps_);
    } else if (averages(settings_, step)) {
        launched = applied = 0;
    }
    if (launched < 0 && applied < 0) return ok();
    WEFT_TRY(ended_by(space_->follow(callers)));
    if (launched >= 0) WEFT_TRY(ended_by(launch(launched, callers)));
    if (applied < 0) return ok();
    WEFT_TRY(apply(applied));
    WEFT_TRY(ended_by(space_->lead(callers)));
    changed = true;
    return ok();
}

Status LocalSgd::launch(int fragment, weftStream_t callers) {
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b)
        if (layout_.fragment_of[b] == fragment)
            for (const int parameter : layout_.buckets.buckets[b].parameters) WEFT_TRY(take(parameter));
    WEFT_TRY(space_->lead(callers));  // the caller's next step changes the parameters
    queue_->add([this, fragment] { return reduce(fragment); });
    return space_->on_device() ? queue_->failure() : ok();
}

Status LocalSgd::reduce(int fragment) const {
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b) {
        const Bucket& bucket = layout_.buckets.buckets[b];
        if (layout_.fragment_of[b] != fragment || bucket.count == 0) continue;
        std::byte* const data = message_.data() + bucket.begin_bytes;
        WEFT_TRY(peers_->all_reduce(data, data, bucket.count, bucket.type, weftAvg, space_->stream()));
    }
    return ok();
}

Status LocalSgd::apply(int fragment) {
    WEFT_TRY(ended_by(queue_->wait()));
    WEFT_TRY(check_finite(fragment));
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b)
        if (layout_.fragment_of[b] == fragment)
            for (const int parameter : layout_.buckets.buckets[b].parameters) WEFT_TRY(ended_by(use(parameter)));
    return ok();
}

Result<int> LocalSgd::first_infinite(const std::vector<Numbers>& all) {
    const size_t bytes = all.size() * sizeof(uint32_t);
    auto* const found = reinterpret_cast<uint32_t*>(found_.data());
    WEFT_TRY(space_->zero(found, bytes));
    for (size_t i = 0; i < all.size(); ++i)
        WEFT_TRY(find_infinite(*space_, all[i].data, all[i].count, all[i].type, found + i));
    WEFT_TRY(space_->copy(found_on_host_.data(), found, bytes));
    WEFT_TRY(await());
    const std::span words(reinterpret_cast<const uint32_t*>(found_on_host_.data()), all.size());
    const auto first = std::find(words.begin(), words.end(), 1u);
    return first == words.end() ? -1 : int(first - words.begin());
}

Status LocalSgd::check_finite(int fragment) {
    std::vector<Numbers> reduced;
    for (size_t b = 0; b < layout_.fragment_of.size(); ++b) {
        const Bucket& bucket = layout_.buckets.buckets[b];
        if (layout_.fragment_of[b] == fragment && bucket.count > 0)
            reduced.push_back({message_.data() + bucket.begin_bytes, bucket.count, bucket.type});
    }
    const auto found = first_infinite(reduced);
    if (!found) return ended_by(found.status().copy());
    return *found < 0 ? ok() : not_finite();
}

Status LocalSgd::not_finite() {
    // The results are equal on all ranks, so all ranks come here.
    std::vector<Numbers> values;
    for (const Tensor& tensor : parameters_) values.push_back({tensor.data, tensor.facts.count, tensor.facts.type});
    const auto found = first_infinite(values);
    if (!found) return ended_by(found.status().copy());
    const int32_t own = *found;
    std::vector<int32_t> all(size_t(peers_->ranks()));
    WEFT_TRY(ended_by(peers_->all_gather(&own, all.data(), sizeof own)));
    const auto first = std::find_if(all.begin(), all.end(), [](int32_t each) { return each >= 0; });
    if (first == all.end())
        return fail(error::train_local_values,
                    "the reduction after step {} gave a number that is not finite, and was dropped: reduce the "
                    "learning rate",
                    steps_ - 1);
    const int rank = int(first - all.begin());
    return fail(error::train_local_values,
                "rank {} has a number that is not finite in parameter {}, \"{}\": the reduction after step {} was "
                "dropped. Restore the parameters from the anchors or a checkpoint",
                rank, *first, parameters_[size_t(*first)].name, steps_ - 1)
        .about({.rank = rank});
}

Status LocalSgd::take(int parameter) {
    const auto& [type, count, rows] = parameters_[size_t(parameter)].facts;
    const void* const values = parameters_[size_t(parameter)].data;
    void* const message = part_of(message_, parameter);
    if (settings_.outer) return subtract(*space_, message, part_of(anchor_, parameter), values, count, type);
    return space_->copy(message, values, count * size_of(type));
}

Status LocalSgd::use(int parameter) {
    const auto& [type, count, rows] = parameters_[size_t(parameter)].facts;
    void* const values = parameters_[size_t(parameter)].data;
    const void* const message = part_of(message_, parameter);
    if (!settings_.outer) return space_->copy(values, message, count * size_of(type));
    return step_outer(*space_, {settings_.learning_rate, settings_.momentum, settings_.mix}, values,
                      part_of(anchor_, parameter), part_of(momentum_, parameter), message, count, type);
}

Status LocalSgd::restore(uint64_t steps) {
    WEFT_TRY(usable());
    WEFT_TRY(await());
    std::vector<uint64_t> all(size_t(peers_->ranks()));
    WEFT_TRY(ended_by(peers_->all_gather(&steps, all.data(), sizeof steps)));
    const auto other = std::find_if(all.begin(), all.end(), [&](uint64_t each) { return each != all[0]; });
    if (other != all.end()) {
        const int rank = int(other - all.begin());
        return fail(error::train_local_restore,
                    "rank 0 restored the state after {} steps, but rank {} that after {} steps: restore one checkpoint "
                    "on all ranks",
                    all[0], rank, *other)
            .about({.rank = rank, .peer = 0});
    }
    steps_ = steps;
    return ok();
}

Result<LocalState> LocalSgd::state(int parameter) {
    WEFT_TRY(usable());
    WEFT_TRY(await());
    if (!settings_.outer) return LocalState{nullptr, nullptr, nullptr, facts_of(parameter)};
    const int fragment = layout_.fragment_of[size_t(layout_.buckets.places[size_t(parameter)].bucket)];
    const bool open = fragment == open_after(settings_, steps_);
    return LocalState{part_of(anchor_, parameter), part_of(momentum_, parameter),
                      open ? part_of(message_, parameter) : nullptr, facts_of(parameter)};
}

Result<void*> LocalSgd::array_of(int parameter, int array) {
    const auto found = state(parameter);
    if (!found) return found.status().copy();
    void* const arrays[] = {found->anchor, found->momentum, found->reduced};
    if (!arrays[array] && found->facts.count > 0)
        return fail(error::argument_value,
                    "parameter {} has no array number {} of the state: see weftTrainLocalState_t", parameter, array);
    return arrays[array];
}

Status LocalSgd::read_state(int parameter, int array, void* to) {
    const auto from = array_of(parameter, array);
    if (!from) return from.status().copy();
    const TensorFacts facts = facts_of(parameter);
    WEFT_TRY(space_->copy(to, *from, facts.count * size_of(facts.type)));
    return space_->synchronize();
}

Status LocalSgd::write_state(int parameter, int array, const void* from) {
    const auto to = array_of(parameter, array);
    if (!to) return to.status().copy();
    const TensorFacts facts = facts_of(parameter);
    WEFT_TRY(space_->copy(*to, from, facts.count * size_of(facts.type)));
    return space_->synchronize();
}

}  // namespace weft::internal::train
