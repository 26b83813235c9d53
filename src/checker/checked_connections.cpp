#include "src/checker/checked_connections.hpp"

namespace weft::internal {

// Chunks in all slots together: about 512 MiB.
static constexpr size_t under_way_most = size_t(1) << 24;

bool CheckedConnections::ready(const StepContext& here) {
    const auto [source, target] = here.operation->ends[size_t(here.rank)][size_t(here.block)];
    if (receives(here.it->opcode) && !has_message(source)) {
        connections_[size_t(source)].blocked_receiver = here.thread;
        return false;
    }
    if (sends(here.it->opcode) && full_slots(target) >= depth(here)) {
        connections_[size_t(target)].blocked_sender = here.thread;
        return false;
    }
    return true;
}

bool CheckedConnections::execute(const StepContext& here) {
    const Opcode opcode = here.it->opcode;
    const bool receives = weft::internal::receives(opcode), sends = weft::internal::sends(opcode),
               reads = reads_source(opcode);
    const auto [source, target] = here.operation->ends[size_t(here.rank)][size_t(here.block)];
    SentChunks message;
    // Parts are equal, so in scratch a chunk may be in the place of another part's; its value identifies it.
    const bool in_scratch = here.it->source == Buffer::scratch || (here.it->targets & Buffer::scratch);
    bool alike = here.alike_chunks();
    if (receives) {
        CheckedConnection& connection = connections_[size_t(source)];
        const int sender = set_.connections()[size_t(source)].source;
        message = std::move(connection.slots.front());
        connection.slots.pop_front();
        under_way_ -= message.values.size();
        queue_.add(std::exchange(connection.blocked_sender, -1));
        if (message.values[0].second.tile != here.operation->first_tile + here.tile)
            return verdict_.object(here, "it receives what rank {} sent for another tile, as its chunk {}, in step {}",
                                   sender, message.chunk, message.step);
        if (here.schedule->parts() > 1 && (in_scratch || message.in_scratch)) alike = false;
        if (alike && message.chunk != here.chunk)
            return verdict_.object(here, "it receives chunk {} of rank {} (sent in step {}) as chunk {}", message.chunk,
                                   sender, message.step, here.chunk);
        if (message.count != here.it->count)
            return verdict_.object(here, "it receives {} chunks where rank {} (in step {}) sends {}", here.it->count,
                                   sender, message.step, message.count);
    }
    std::vector<std::pair<int, Value>> passed_on;
    size_t next = 0;  // index in the values of the message
    for (int offset = 0; offset < here.it->count; ++offset) {
        const StepContext there = here.at(offset);
        if (there.empty()) continue;
        Value value;
        if (receives) {
            // At least of the same size: the same share of a part.
            const int shares = alike ? here.schedule->chunks : here.schedule->chunks / here.schedule->parts();
            if (next == message.values.size() || message.values[next].first % shares != there.chunk % shares)
                return here.it->count == 1
                           ? verdict_.object(there,
                                             "it receives chunk {} of rank {} (sent in step {}) as chunk {}, which can "
                                             "be of another size",
                                             message.chunk, set_.connections()[size_t(source)].source, message.step,
                                             there.chunk)
                           : verdict_.object(
                                 there, "its span and that of rank {} (sent in step {}) go round at different places",
                                 set_.connections()[size_t(source)].source, message.step);
            value = message.values[next++].second;
        }
        if (reads) {
            Value own;
            if (!memory_.read(there, here.it->source, here.rank, own)) return false;
            if (receives && (value.finished || own.finished))
                return verdict_.object(there, "it adds to chunk {}, which is finished already", there.chunk);
            value = !receives ? own : here.it->left ? Contributions::sum(own, value) : Contributions::sum(value, own);
        }
        if (here.it->finish && !memory_.finish(there, value)) return false;
        if (!memory_.write(there, here.it->targets, value)) return false;
        if (sends) passed_on.emplace_back(there.chunk, value);
    }
    if (next < message.values.size())
        return verdict_.object(here, "it receives less than rank {} (in step {}) has sent",
                               set_.connections()[size_t(source)].source, message.step);
    if (sends) {
        CheckedConnection& connection = connections_[size_t(target)];
        if ((under_way_ += passed_on.size()) > under_way_most)
            return verdict_.object(error::schedule_limit, here,
                                   "more than {} chunks are in flight at once, which is too many to check",
                                   under_way_most);
        connection.slots.push_back(
            {std::move(passed_on), here.chunk, here.it->count, here.step, in_scratch || message.in_scratch});
        queue_.add(std::exchange(connection.blocked_receiver, -1));
    }
    return true;
}

Status CheckedConnections::leftovers() const {
    for (size_t i = 0; i < connections_.size(); ++i) {
        if (connections_[i].slots.empty()) continue;
        const ConnectionEnds& ends = set_.connections()[i];
        const SentChunks& message = connections_[i].slots[0];
        return fail(error::schedule_set,
                    "rank {} sends chunk {} to rank {} on channel {}, in step {}, which never receives it", ends.source,
                    message.chunk, ends.target, ends.channel, message.step);
    }
    return ok();
}

}  // namespace weft::internal
