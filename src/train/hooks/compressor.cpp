#include "src/train/hooks/compressor.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

Compressor::Compressor(const CompressorSettings& settings) : settings_(settings), power_sgd_(settings.rank) {}

Status Compressor::check_free(const std::shared_ptr<const char>& life) const {
    const auto served = serves_.lock();
    if (!served || served == life) return ok();
    return fail(error::train_compressor,
                "the compressor serves another weftTrainDdp, whose unsent gradients it keeps: destroy that one first, "
                "or make a compressor for each");
}

Status Compressor::check_counts(std::span<const CompressorState> states, std::span<const TensorFacts> parameters) {
    if (states.empty()) return ok();
    if (states.size() != parameters.size())
        return fail(error::train_compressor, "the compressor has state of {} parameters, but the model has {}",
                    states.size(), parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i)
        if (states[i].count != parameters[i].count)
            return fail(error::train_compressor,
                        "the compressor has state of {} elements for parameter {}, which has {}", states[i].count, i,
                        parameters[i].count);
    return ok();
}

void Compressor::serve(const std::shared_ptr<const char>& life, std::span<const TensorFacts> parameters) {
    serves_ = life;
    parameters_.assign(parameters.begin(), parameters.end());
    if (!states_.empty()) return;
    states_.resize(parameters.size());
    for (size_t i = 0; i < states_.size(); ++i) states_[i].count = parameters[i].count;
}

Result<std::vector<std::byte>> Compressor::saved() const {
    if (!memory_) return bytes_of(settings_.method, states_);
    auto states = memory_->states(*worker_);
    if (!states) return states.take_status();
    return bytes_of(settings_.method, *states);
}

size_t Compressor::saved_bytes() const {
    return memory_ ? memory_->bytes() : bytes_of(settings_.method, states_).size();
}

Status Compressor::load(std::span<const std::byte> bytes) {
    auto states = states_from(settings_.method, bytes);
    if (!states) return states.take_status();
    if (!serves_.expired()) WEFT_TRY(check_counts(*states, parameters_));
    states_ = std::move(*states);
    memory_.reset();
    return ok();
}

MemoryNeeds Compressor::needs() const {
    MemoryNeeds needs;
    needs.error = settings_.error_feedback;
    needs.momentum = has_momentum();
    needs.has_sums = has_sums() && settings_.error_feedback;
    if (settings_.method == weftTrainPowerSgd) needs.factor_rank = settings_.rank;
    needs.least_rate = settings_.least_rate;
    return needs;
}

Status Compressor::park() {
    if (!memory_) return ok();
    auto states = memory_->states(*worker_);
    if (!states) return states.take_status();
    states_ = std::move(*states);
    memory_.reset();
    return ok();
}

Status Compressor::prepare(int device) {
    if (worker_ && device_ == device) return ok();
    WEFT_TRY(park());
    scratch_ = Scratch();
    exchange_ = CompressedExchange();
    power_sgd_ = PowerSgd(settings_.rank);
    auto worker = hook_worker(device);
    if (!worker) return worker.take_status();
    worker_ = std::move(*worker);
    device_ = device;
    return ok();
}

Status Compressor::place(const HookOwner& owner, double divisor) {
    if (memory_ && placed_for_.lock() == owner.life && version_ == owner.buckets->version()) return ok();
    WEFT_TRY(park());
    WEFT_TRY(prepare(owner.space->device()));
    auto memory = CompressorMemory::make(*worker_, needs(), form(), *owner.buckets, states_, *owner.peers, divisor);
    if (!memory) return memory.take_status();
    memory_.emplace(std::move(*memory));
    placed_for_ = owner.life;
    version_ = owner.buckets->version();
    for (CompressorState& state : states_) {
        const size_t count = state.count;
        state = CompressorState();
        state.count = count;
    }
    return ok();
}

Status Compressor::reduce(HookOwner& owner, const weftTrainBucket_t& bucket) {
    WEFT_TRY(check_free(owner.life));
    if (serves_.expired()) {
        WEFT_TRY(check_model(owner.buckets->parameters()));
        serve(owner.life, owner.buckets->parameters());
    }
    WEFT_TRY(find_members(owner, bucket));
    WEFT_TRY(place(owner, bucket.divisor));
    const bool first = memory_->iterations(now_.members.front().parameter) < settings_.start_iteration;
    if (first) WEFT_TRY(average(bucket));
    MemorySpace& space = worker_->space();
    WEFT_TRY(space.follow(owner.stream));
    Status done = first ? keep_first(bucket) : exchange(*owner.peers, bucket);
    Status led = space.lead(owner.stream);  // also after a failure: the bucket may be freed then
    WEFT_TRY(std::move(done));
    WEFT_TRY(std::move(led));
    for (const Member& member : now_.members) memory_->count_iteration(member.parameter);
    compressed_ = !first;
    return ok();
}

Status Compressor::find_members(const HookOwner& owner, const weftTrainBucket_t& bucket) {
    const Bucket& own = owner.buckets->layout().buckets[size_t(owner.index)];
    const auto parameters = owner.buckets->parameters();
    if (bucket.count != own.count || bucket.datatype != own.type)
        return fail(error::argument_value, "the bucket has {} elements of {}, but {} of {} were given: pass all of it",
                    own.count, name_of(own.type), bucket.count, name_of(bucket.datatype));
    now_.bucket = owner.index;
    now_.count = own.count;
    now_.members.clear();
    for (size_t i = 0; i < own.parameters.size(); ++i) {
        const TensorFacts& facts = parameters[size_t(own.parameters[i])];
        now_.members.push_back({own.offsets[i], facts.count, facts.rows, own.parameters[i]});
    }
    return ok();
}

Status Compressor::keep_first(const weftTrainBucket_t& bucket) {
    if (!has_momentum()) return ok();
    WEFT_TRY(scratch_.values.grow(worker_->space(), now_.count * sizeof(float)));
    WEFT_TRY(worker_->read(values(), bucket.data, now_.count, bucket.datatype));
    WEFT_TRY(worker_->measure(values(), now_.count));
    WEFT_TRY(add_momentum());
    return worker_->keep(memory_->momentum(now_.bucket), values(), now_.count);
}

Status Compressor::add_momentum() {
    return worker_->each(HookWork::mix, now_.count, values(), memory_->momentum(now_.bucket), nullptr,
                         float(settings_.momentum));
}

// The momentum of exact iterations is equal on all ranks, and so are the scales.
Status Compressor::scale_layers() {
    if (!settings_.layer_scales || !has_momentum()) return ok();
    for (const Member& member : now_.members) {
        double* const scale = memory_->scale(member.parameter);
        if (memory_->take_first_scale(member.parameter))
            WEFT_TRY(worker_->find_scale(scale, memory_->momentum(now_.bucket) + member.begin, member.count));
        WEFT_TRY(worker_->scale(HookWork::scale, member.count, values() + member.begin, scale));
    }
    return ok();
}

Status Compressor::unscale_layers() {
    if (!settings_.layer_scales || !has_momentum()) return ok();
    for (const Member& member : now_.members)
        WEFT_TRY(
            worker_->scale(HookWork::unscale, member.count, values() + member.begin, memory_->scale(member.parameter)));
    return ok();
}

Status Compressor::exchange(const Peers& peers, const weftTrainBucket_t& bucket) {
    MemorySpace& space = worker_->space();
    const size_t bytes = now_.count * sizeof(float);
    WEFT_TRY(scratch_.values.grow(space, bytes));
    WEFT_TRY(worker_->read(values(), bucket.data, now_.count, bucket.datatype));
    if (has_momentum()) WEFT_TRY(add_momentum());
    // All ranks send their momentum, also joined ones: `ranks` shares that are divided by another number.
    if (const double weight = double(bucket.divisor) / peers.ranks(); has_momentum() && weight != 1)
        WEFT_TRY(worker_->each(HookWork::add_scaled, now_.count, values(), memory_->momentum(now_.bucket), nullptr,
                               float(settings_.momentum * (weight - 1))));
    WEFT_TRY(scale_layers());
    if (settings_.error_feedback) {
        WEFT_TRY(scratch_.errors.grow(space, bytes));
        WEFT_TRY(space.add(values(), memory_->error(now_.bucket), now_.count, weftFloat32));
    }
    WEFT_TRY(send(peers, bucket.divisor));
    WEFT_TRY(unscale_layers());
    WEFT_TRY(keep_state());
    return worker_->write(bucket.data, values(), now_.count, bucket.datatype);
}

std::span<float> Compressor::sum_errors() const {
    return {reinterpret_cast<float*>(scratch_.sum_errors.data()), memory_->sum_error(now_.bucket).size()};
}

Status Compressor::send(const Peers& peers, double divisor) {
    if (settings_.method == weftTrainPowerSgd) return send_matrices(peers, divisor);
    if (settings_.method == weftTrainTopK) return send_largest(peers, divisor);
    const std::span<float> kept = memory_->sum_error(now_.bucket);
    WEFT_TRY(scratch_.sum_errors.grow(worker_->space(), kept.size_bytes()));
    WEFT_TRY(worker_->space().copy(sum_errors().data(), kept.data(), kept.size_bytes()));
    const std::span<float> own_errors(errors(), settings_.error_feedback ? now_.count : 0);
    return exchange_.run(peers, *worker_, form(), divisor, {values(), now_.count}, own_errors, sum_errors());
}

Status Compressor::send_matrices(const Peers& peers, double divisor) {
    MemorySpace& space = worker_->space();
    std::vector<LowRankMatrix> matrices;
    std::vector<std::span<float>> whole;
    size_t rights = 0;
    for (const Member& member : now_.members) rights += memory_->right_count(member.parameter);
    WEFT_TRY(scratch_.rights.grow(space, rights * sizeof(float)));
    auto* right = reinterpret_cast<float*>(scratch_.rights.data());
    for (const Member& member : now_.members) {
        float* const numbers = values() + member.begin;
        const size_t own = memory_->right_count(member.parameter);
        if (own == 0) {
            whole.emplace_back(numbers, member.count);
            continue;
        }
        WEFT_TRY(settings_.warm_start ? space.copy(right, memory_->right(member.parameter), own * sizeof(float))
                                      : space.zero(right, own * sizeof(float)));
        matrices.push_back({numbers, member.rows, member.count / member.rows, right,
                            seed_of(settings_, member.parameter, memory_->iterations(member.parameter))});
        right += own;
    }
    if (settings_.error_feedback) WEFT_TRY(space.copy(errors(), values(), now_.count * sizeof(float)));
    WEFT_TRY(power_sgd_.run(peers, *worker_, divisor, matrices, whole));
    if (!settings_.error_feedback) return ok();
    // The errors of all ranks add up to the rest of the sum, which is the result times the divisor.
    const auto share = float(divisor / peers.ranks());
    WEFT_TRY(worker_->each(HookWork::add_scaled, now_.count, errors(), values(), nullptr, -share));
    for (const std::span<float> numbers : whole)
        WEFT_TRY(space.zero(errors() + (numbers.data() - values()), numbers.size_bytes()));
    return ok();
}

Status Compressor::send_largest(const Peers& peers, double divisor) {
    if (now_.count > UINT32_MAX)
        return fail(error::argument_count,
                    "the bucket has {} elements; top-k serves at most {}: set a smaller bucketCapBytes", now_.count,
                    UINT32_MAX);
    MemorySpace& space = worker_->space();
    const size_t kept = std::clamp<size_t>(size_t(std::ceil(settings_.density * double(now_.count))), 1, now_.count);
    WEFT_TRY(scratch_.list.grow(space, kept * sizeof(IndexedNumber)));
    WEFT_TRY(scratch_.lists.grow(space, kept * size_t(peers.ranks()) * sizeof(IndexedNumber)));
    auto* const own = reinterpret_cast<IndexedNumber*>(scratch_.list.data());
    const auto* const all = reinterpret_cast<const IndexedNumber*>(scratch_.lists.data());
    WEFT_TRY(worker_->select(values(), now_.count, kept, own));
    WEFT_TRY(peers.all_gather(own, scratch_.lists.data(), kept * sizeof(IndexedNumber), space.stream()));
    if (settings_.error_feedback) {
        WEFT_TRY(space.copy(errors(), values(), now_.count * sizeof(float)));
        WEFT_TRY(worker_->zero_selected(errors(), own, kept));
    }
    WEFT_TRY(space.zero(values(), now_.count * sizeof(float)));
    for (int rank = 0; rank < peers.ranks(); ++rank)
        WEFT_TRY(worker_->add_selected(values(), now_.count, all + size_t(rank) * kept, kept));
    return worker_->each(HookWork::average, now_.count, values(), nullptr, nullptr, float(divisor));
}

Status Compressor::keep_state() {
    WEFT_TRY(worker_->measure(values(), now_.count));
    if (has_momentum()) WEFT_TRY(worker_->keep(memory_->momentum(now_.bucket), values(), now_.count));
    if (settings_.error_feedback) WEFT_TRY(worker_->keep(memory_->error(now_.bucket), errors(), now_.count));
    const std::span<float> sums = memory_->sum_error(now_.bucket);
    WEFT_TRY(worker_->keep(sums.data(), sum_errors().data(), sums.size()));
    if (settings_.method != weftTrainPowerSgd || !settings_.warm_start) return ok();
    const auto* right = reinterpret_cast<const float*>(scratch_.rights.data());
    for (const Member& member : now_.members) {
        const size_t count = memory_->right_count(member.parameter);
        WEFT_TRY(worker_->keep(memory_->right(member.parameter), right, count));
        right += count;
    }
    return ok();
}

}  // namespace weft::internal::train
