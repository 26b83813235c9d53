#include "tests/conformance/uneven_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace weft::internal::test {

namespace {

using Lengths = UnevenTable::Lengths;
using Laying = UnevenTable::Laying;
using Parts = UnevenCall::Parts;

// Elements from each rank to each. A rank that sends the same part to all, or receives the same from all, has one
// count.
std::vector<std::vector<size_t>> draw_counts(Collective collective, int n, Lengths lengths, std::mt19937& random) {
    const int giver = n / 2, taker = (giver + 1) % n;
    const auto all = static_cast<size_t>(n);
    std::vector<std::vector<size_t>> counts(all, std::vector<size_t>(all));
    for (int from = 0; from < n; ++from)
        for (int to = 0; to < n; ++to) {
            size_t& count = counts[size_t(from)][size_t(to)];
            if (collective == Collective::all_gather_v && to > 0) {
                count = counts[size_t(from)][0];
                continue;
            }
            if (collective == Collective::reduce_scatter_v && from > 0) {
                count = counts[0][size_t(to)];
                continue;
            }
            const int its = collective == Collective::reduce_scatter_v ? to : from;
            const bool alone = its == giver && (collective != Collective::all_to_all_v || to == taker);
            switch (lengths) {
                case Lengths::nothing: count = 0; break;
                case Lengths::equal: count = 13; break;
                case Lengths::some: count = (from + to) % 3 == 0 ? 0 : 1 + random() % 90; break;
                case Lengths::one_giver: count = its == giver ? 1 + random() % 500 : 0; break;
                case Lengths::any: count = random() % 900; break;
                // Also such as are read where they lie.
                case Lengths::one_long: count = alone ? 70'000 + random() % 3000 : random() % 90; break;
            }
        }
    return counts;
}

Parts lay(std::vector<size_t> counts, Laying laying, bool far, std::mt19937& random) {
    Parts parts;
    parts.counts = std::move(counts);
    parts.places.resize(parts.counts.size());
    std::vector<size_t> order(parts.counts.size());
    std::iota(order.begin(), order.end(), size_t(0));
    if (laying == Laying::backwards) std::reverse(order.begin(), order.end());
    if (laying == Laying::shuffled) std::shuffle(order.begin(), order.end(), random);
    const bool gaps = laying == Laying::gaps || laying == Laying::shuffled;
    for (const size_t part : order) {
        if (gaps) parts.elements += random() % 4;
        parts.places[part] = parts.elements;
        parts.elements += parts.counts[part];
    }
    if (gaps) parts.elements += random() % 4;
    // The place of an empty part is not read.
    for (size_t part = 0; part < parts.counts.size() && far; ++part)
        if (parts.counts[part] == 0) parts.places[part] = parts.elements + 10'000;
    return parts;
}

constexpr size_t margin = 32;
constexpr std::byte mark{0xa5};

// A buffer, and its content before and after the call.
struct Image {
    Bytes before, after;
    std::unique_ptr<DeviceBuffer> buffer;

    explicit Image(size_t bytes) : before(bytes + margin, mark), after(before) {}
    void make(int device, size_t offset, DeviceBuffer::Kind kind) {
        buffer = std::make_unique<DeviceBuffer>(device, before.size(), offset, kind);
        buffer->write(before.data(), before.size());
    }
    bool is_right() const { return buffer->read(after.size()) == after; }
    std::byte* data() const { return static_cast<std::byte*>(buffer->data()); }
};

void put(Bytes& image, const Bytes& part, size_t at) {
    std::copy(part.begin(), part.end(), image.begin() + ptrdiff_t(at));
}

// A rank's buffers of the call.
class Own {
  public:
    Own(const UnevenCall& call, int rank, int device, DeviceBuffer::Kind kind)
        : call_(call),
          rank_(rank),
          first_((takes_in_place() ? takes() : sends()).elements * size_of(call.type)),
          second_(in_place() ? 0 : takes().elements * size_of(call.type)) {
        const Held in = call.input_held(rank), out = call.output_held(rank);
        Image& taken = in_place() ? first_ : second_;
        if (takes_in_place())
            put(first_.before, call.given[size_t(rank)][size_t(std::max(0, call.root))], own_place(takes()));
        else
            for (size_t part = 0; part < sends().counts.size(); ++part)
                put(first_.before, call.given[size_t(rank)][in == Held::all ? part : size_t(std::max(0, call.root))],
                    place(sends(), part));
        first_.after = first_.before;
        for (size_t part = 0; part < takes().counts.size(); ++part)
            put(taken.after, call.taken(out == Held::all ? int(part) : call.root, rank),
                gives_in_place() ? own_place(sends()) : place(takes(), part));
        first_.make(device, call.send_offset, kind);
        second_.make(device, call.receive_offset, kind);
        if (in != Held::nothing) send_ = first_.data() + (takes_in_place() ? own_place(takes()) : alone(sends(), in));
        if (out != Held::nothing)
            receive_ = gives_in_place() ? first_.data() + own_place(sends())
                                        : (in_place() ? first_ : second_).data() + alone(takes(), out);
        if (call.counted[size_t(rank)])
            for (const auto* table : {&sends().counts, &sends().places, &takes().counts, &takes().places})
                tables_.push_back(std::make_unique<Numbers>(device, *table));
    }

    weftResult_t issue(weftComm_t comm, weftRedOp_t op, weftStream_t stream) const {
        const Parts &sends = this->sends(), &takes = this->takes();
        const auto type = call_.type;
        const int root = call_.root;
        const bool gives_all = call_.input_held(rank_) == Held::all, takes_all = call_.output_held(rank_) == Held::all;
        const size_t* const send_counts = gives_all ? sends.counts.data() : nullptr;
        const size_t* const send_places = gives_all ? sends.places.data() : nullptr;
        const size_t* const take_counts = takes_all ? takes.counts.data() : nullptr;
        const size_t* const take_places = takes_all ? takes.places.data() : nullptr;
        if (!tables_.empty())
            return weftAlltoAllvDeviceCounts(send_, tables_[0]->data(), tables_[1]->data(), receive_,
                                             tables_[2]->data(), tables_[3]->data(), type, comm, stream);
        switch (call_.collective) {
            case Collective::all_to_all_v:
                return weftAlltoAllv(send_, send_counts, send_places, receive_, take_counts, take_places, type, comm,
                                     stream);
            case Collective::gather_v:
                return weftGatherv(send_, sends.counts[0], receive_, take_counts, take_places, type, root, comm,
                                   stream);
            case Collective::scatter_v:
                return weftScatterv(send_, send_counts, send_places, receive_, takes.counts[0], type, root, comm,
                                    stream);
            case Collective::all_gather_v:
                return weftAllGatherv(send_, sends.counts[0], receive_, take_counts, take_places, type, comm, stream);
            default: return weftReduceScatterv(send_, receive_, send_counts, type, op, comm, stream);
        }
    }

    std::string fault() const {
        if (!first_.is_right()) return in_place() ? "its buffer is wrong" : "its input changed";
        return second_.is_right() ? "" : "what it received, or what lies beside that, is wrong";
    }

  private:
    const Parts& sends() const { return call_.sends[size_t(rank_)]; }
    const Parts& takes() const { return call_.takes[size_t(rank_)]; }
    bool in_place() const { return call_.in_place[size_t(rank_)]; }
    bool takes_in_place() const { return in_place() && call_.output_held(rank_) == Held::all; }
    bool gives_in_place() const { return in_place() && call_.input_held(rank_) == Held::all; }
    size_t place(const Parts& parts, size_t part) const {
        return parts.counts[part] == 0 ? 0 : parts.places[part] * size_of(call_.type);
    }
    size_t own_place(const Parts& parts) const { return place(parts, size_t(rank_)); }
    // A buffer of one part begins there.
    size_t alone(const Parts& parts, Held held) const { return held == Held::own ? place(parts, 0) : 0; }

    const UnevenCall& call_;
    int rank_;
    Image first_, second_;  // in place all is in the first
    const std::byte* send_ = nullptr;
    std::byte* receive_ = nullptr;
    std::vector<std::unique_ptr<Numbers>> tables_;
};

}  // namespace

Bytes UnevenCall::taken(int giver, int taker) const {
    if (!facts_of(collective).reduces) return given[size_t(giver)][size_t(taker)];
    Call sum;
    sum.algorithm = registry::find_algorithm("one_shot", Collective::all_reduce);
    sum.type = type;
    sum.op = op;
    sum.scalars = scalars;
    for (const auto& its : given) sum.inputs.push_back(its[size_t(taker)]);
    sum.tile_bytes = std::max<size_t>(64, sum.bytes());
    return expected(sum)[size_t(taker)];
}

std::string UnevenCall::text() const {
    std::string all = fmt::format("{} of {}, op {}, root {}, {} ranks, offsets {} and {}", facts_of(collective).name,
                                  name_of(type), op, root, ranks(), send_offset, receive_offset);
    const auto listed = [](const std::vector<size_t>& numbers) {
        std::string list;
        for (const size_t number : numbers) list += (list.empty() ? "" : " ") + std::to_string(number);
        return list;
    };
    const auto is = [](const std::vector<bool>& flags, int rank) {
        return size_t(rank) < flags.size() && flags[size_t(rank)];
    };
    for (int rank = 0; rank < ranks(); ++rank) {
        const auto &gives = sends[size_t(rank)], &gets = takes[size_t(rank)];
        all += fmt::format("\nrank {}{}{} sends {} at {}, receives {} at {}", rank,
                           is(in_place, rank) ? ", in place," : "", is(counted, rank) ? ", counted on its device," : "",
                           listed(gives.counts), listed(gives.places), listed(gets.counts), listed(gets.places));
    }
    return all;
}

std::vector<int> UnevenTable::sizes() const {
    const CollectiveFacts facts = facts_of(collective);
    const bool tables = collective != Collective::reduce_scatter_v;
    return {int(rank_counts.size()),
            weftNumTypes,
            facts.reduces ? reductions_drawn : 1,
            6,
            tables ? 4 : 1,
            facts.rooted ? 3 : 1,
            facts.transposes ? 2 : 4,
            facts.transposes && on_device ? 3 : 1};
}

std::string fault_of(const Ranks& ranks, const UnevenCall& call, DeviceBuffer::Kind kind) {
    std::vector<std::unique_ptr<Own>> owns;
    for (int own = 0; own < ranks.count(); ++own)
        owns.push_back(std::make_unique<Own>(call, ranks.first + own, ranks.placing[size_t(own)], kind));
    const bool on_host = DeviceBuffer::on_host(kind);
    {
        const Reductions reductions(ranks, call.op, call.type, call.scalars, call.by_function && on_host);
        ranks.group([&](int own) {
            return owns[size_t(own)]->issue(ranks.comms[size_t(own)], reductions.of(own),
                                            on_host ? nullptr : ranks.streams[size_t(own)]->weft());
        });
        ranks.finish();
    }
    ranks.check_healthy();
    for (int own = 0; own < ranks.count(); ++own)
        if (const std::string fault = owns[size_t(own)]->fault(); !fault.empty())
            return "rank " + std::to_string(ranks.first + own) + ": " + fault;
    return "";
}

UnevenCall UnevenTable::call(const Line& line, std::mt19937& random) const {
    const CollectiveFacts facts = facts_of(collective);
    const int n = rank_counts[size_t(line[ranks])];
    UnevenCall call;
    call.collective = collective;
    call.root = facts.rooted ? std::array{0, n / 2, n - 1}[size_t(line[root])] : -1;
    call.type = weftDataType_t(line[type]);
    call.op = facts.reduces ? reduction_of(line[op], call.type) : int(weftSum);
    call.by_function = line[op] == sum_by_function;
    const auto where = Placement(line[placement]);
    if (where == Placement::beside_lines) {
        call.send_offset = (1 + random() % 7) * size_of(call.type);
        call.receive_offset = (1 + random() % 7) * size_of(call.type);
    }
    const auto counts = draw_counts(collective, n, Lengths(line[lengths]), random);
    const auto laid = Laying(line[laying]);
    const bool far = (laid == Laying::gaps || laid == Laying::shuffled) && random() % 2 == 0;
    for (int rank = 0; rank < n; ++rank) {
        const Held in = call.input_held(rank), out = call.output_held(rank);
        const int one_taker = std::max(0, call.root), one_giver = std::max(0, call.root);
        std::vector<Bytes>& given = call.given.emplace_back(size_t(n));
        std::vector<size_t> sent, taken;
        for (int peer = 0; peer < n; ++peer) {
            if (in == Held::all || (in == Held::own && peer == one_taker)) {
                sent.push_back(counts[size_t(rank)][size_t(peer)]);
                given[size_t(peer)] = reference::whole(call.type, sent.back(), n, rank, random);
            }
            if (out == Held::all || (out == Held::own && peer == one_giver))
                taken.push_back(counts[size_t(peer)][size_t(rank)]);
        }
        if (collective == Collective::all_gather_v) given.assign(size_t(n), given[0]);
        call.sends.push_back(lay(std::move(sent), facts.reduces ? Laying::closely : laid, far, random));
        call.takes.push_back(lay(std::move(taken), laid, far, random));
        if (call.op == premul) call.scalars.push_back(reference::whole_scalar(call.type, random));
        const bool both = (in == Held::own && out == Held::all) || (in == Held::all && out == Held::own);
        call.in_place.push_back(
            both && (where == Placement::in_place || (where == Placement::in_place_on_some && rank % 2 == 0)));
        call.counted.push_back(line[counted] == 2 || (line[counted] == 1 && random() % 2 == 0));
    }
    return call;
}

}  // namespace weft::internal::test
