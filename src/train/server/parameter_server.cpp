#include "src/train/server/parameter_server.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/thread.hpp"
#include "src/train/agreement.hpp"
#include "src/train/local_arithmetic.hpp"
#include "src/train/server/server_message.hpp"

namespace weft::internal::train {

namespace {

// Of a link: later than that of a pull, so that workers learn the slow rank first. A worker may compute that long.
int64_t link_timeout_ms(int64_t pull_timeout_ms) {
    constexpr int64_t least_extra_ms = 60'000;
    if (pull_timeout_ms == 0 || pull_timeout_ms > INT64_MAX / 2) return 0;
    return pull_timeout_ms + std::max(pull_timeout_ms, least_extra_ms);
}

}  // namespace

Result<std::shared_ptr<ParameterServer>> ParameterServer::make(Status own, std::vector<Tensor> parameters,
                                                               const ServerRules& rules,
                                                               std::unique_ptr<MemorySpace> space, weftComm_t comm) {
    std::shared_ptr<ParameterServer> made(new ParameterServer(std::move(parameters), rules, std::move(space)));
    if (own) own = made->copies_.reserve(*made->space_, made->parameters_);
    auto peers = Peers::make(comm);
    if (!peers) return own ? peers.take_status() : std::move(own);
    made->peers_ = std::move(*peers);
    const int workers = made->peers_->ranks() - rules.servers;
    if (own && (workers < 1 || rules.accepted > workers))
        own = fail(error::argument_config,
                   "config.servers is {} and config.accepted is {}, but the communicator has {} ranks: at least one "
                   "rank is a worker, and there are at least as many workers as accepted gradients",
                   rules.servers, rules.accepted, made->peers_->ranks());
    std::string text = described(rules);
    for (size_t i = 0; i < made->parameters_.size(); ++i)
        add_line(text, "parameter", i, made->parameters_[i].name, made->parameters_[i].facts);
    WEFT_TRY(check_agreement(*made->peers_, std::move(text), std::move(own)));
    Status ready = made->copies_.broadcast(*made->peers_);
    if (ready) ready = made->connect();
    if (!ready) made->abort();
    WEFT_TRY(std::move(ready));
    return made;
}

ParameterServer::~ParameterServer() {
    if (space_) (void)space_->synchronize();  // copies may still use the messages
    links_.clear();
    peers_.reset();
}

void ParameterServer::lay_out(bool serves) {
    parts_.assign(size_t(rules_.servers), {{}, server_header_bytes});
    for (int i = 0; i < parameter_count(); ++i) {
        const Tensor& tensor = (serves ? copies_.tensors() : parameters_)[size_t(i)];
        const size_t server = server_of(tensor.name, rules_.servers);
        owners_.push_back(int(server));
        Part& part = parts_[server];
        part.keys.push_back({i, tensor, part.message_bytes});
        part.message_bytes += bytes_in_message(tensor);
    }
}

Status ParameterServer::connect() {
    const int rank = peers_->rank(), servers = rules_.servers, workers = peers_->ranks() - servers;
    const bool serves = rank < servers;
    lay_out(serves);
    const int own = serves ? rank : rank - servers;
    if (serves) state_ = std::make_unique<ServerState>(rules_, parts_[size_t(own)].keys, workers);
    links_.resize(size_t(serves ? workers : servers));
    const int64_t timeout_ms = link_timeout_ms(rules_.timeout_ms);
    // In each round a server meets one worker at most, and in all rounds each worker once.
    const int rounds = std::max(servers, workers);
    for (int round = 0; round < rounds; ++round) {
        const int other = serves ? (own + round) % rounds : (own - round + rounds) % rounds;
        const bool meets = other < int(links_.size());
        const int server = serves ? own : other;
        auto link =
            ServerLink::make(peers_->comm(), meets ? server : WEFT_SPLIT_NOCOLOR, serves ? servers + other : other,
                             timeout_ms, *space_, meets ? parts_[size_t(server)].message_bytes : 0);
        if (!link) return link.take_status();
        if (meets) links_[size_t(other)] = std::move(*link);
    }
    answers_.resize(links_.size());
    if (!serves) copies_.release();
    return ok();
}

Status ParameterServer::usable() const {
    if (!failure_) return failure_.copy();
    if (!peers_->aborted()) return ok();
    return fail(error::train_aborted, "weftTrainServerAbort has ended this object: destroy it and make a new one");
}

Status ParameterServer::ended_by(Status status) {
    if (status) return status;
    if (peers_->aborted())
        status = fail(error::train_aborted, "weftTrainServerAbort has ended this object: {}", status.sentence());
    if (failure_) failure_ = status.copy();
    // A server's workers have had its answer. A worker's servers wait for it.
    abort();
    return status;
}

void ParameterServer::abort() {
    // Threads that serve may wait for other workers, not for their links.
    if (state_ && !peers_->aborted())
        state_->fail_all({error::train_aborted, "weftTrainServerAbort has ended the server"});
    peers_->abort();
    for (const auto& link : links_)
        if (link) link->abort();
}

// ---- Servers ----

Status ParameterServer::serve() {
    WEFT_TRY(usable());
    if (finished_)
        return fail(error::train_server_order, "all workers have finished: weftTrainServerServe is called once");
    finished_ = true;
    std::vector<OwnedThread> threads;
    for (int worker = 1; worker < int(links_.size()); ++worker) {
        auto thread = OwnedThread::start("weft-server", [this, worker] { serve_worker(worker); });
        if (!thread) {
            state_->fail_all(thread.status());
            links_[size_t(worker)]->abort();  // no thread answers this worker
        } else {
            threads.push_back(std::move(*thread));
        }
    }
    serve_worker(0);
    for (OwnedThread& thread : threads) thread.end();
    WEFT_TRY(ended_by(state_->failure()));
    for (const ServerKey& key : parts_[size_t(peers_->rank())].keys) WEFT_TRY(ended_by(copies_.write(key.parameter)));
    return ended_by(space_->synchronize());
}

void ParameterServer::serve_worker(int worker) {
    ServerLink& link = *links_[size_t(worker)];
    Served served = Served::more;
    while (served == Served::more) {
        Result<Served> result = Served::failed;
        try {
            result = answer(worker);
        } catch (const std::exception& exception) {
            result = Status(error::internal_exception, exception.what());
        }
        if (!result) return state_->fail_all(result.status());
        served = *result;
    }
    if (served == Served::finished)
        link.end();
    else
        (void)link.wait();  // until the worker has read its answer and ended the link
}

Result<ParameterServer::Served> ParameterServer::answer(int worker) {
    ServerLink& link = *links_[size_t(worker)];
    WEFT_TRY(link.wait());
    const ServerHeader request = header_of(link.received());
    const Result<ServerAnswer> result = request.kind == MessageKind::push
                                            ? state_->push(worker, request.step, link.received())
                                        : request.kind == MessageKind::pull ? state_->pull(worker, link.outgoing())
                                                                            : state_->finish(worker);
    const ServerHeader header = header_for(result);
    memcpy(link.outgoing(), &header, sizeof header);
    const bool with_values = result && request.kind == MessageKind::pull;
    WEFT_TRY(link.send(with_values ? parts_[size_t(peers_->rank())].message_bytes : server_header_bytes));
    if (!result) return Served::failed;
    return request.kind == MessageKind::finish ? Served::finished : Served::more;
}

// ---- Workers ----

Status ParameterServer::put_gradients(weftStream_t callers) {
    WEFT_TRY(ended_by(space_->follow(callers)));
    for (size_t server = 0; server < links_.size(); ++server)
        for (const ServerKey& key : parts_[server].keys)
            WEFT_TRY(ended_by(space_->copy(links_[server]->outgoing() + key.offset_bytes, key.tensor.gradient,
                                           element_bytes(key.tensor))));
    WEFT_TRY(ended_by(space_->synchronize()));
    return check_gradients();
}

Status ParameterServer::check_gradients() const {
    for (size_t server = 0; server < links_.size(); ++server)
        for (const ServerKey& key : parts_[server].keys) {
            const TensorFacts& facts = key.tensor.facts;
            if (all_finite(links_[server]->outgoing() + key.offset_bytes, facts.count, facts.type)) continue;
            return fail(
                       error::train_server_gradient,
                       "the gradient of \"{}\" has a number that is not finite, so nothing was pushed: drop this step, "
                       "or correct the gradient and push again",
                       key.tensor.name)
                .about({.rank = peers_->rank()});
        }
    return ok();
}

Status ParameterServer::send(ServerLink& link, size_t server, MessageKind kind, uint64_t step, size_t bytes) {
    WEFT_TRY(take_answer(server));
    ServerHeader header;
    header.kind = kind;
    header.step = step;
    memcpy(link.outgoing(), &header, sizeof header);
    WEFT_TRY(link.send(bytes));
    answers_[server].missing = true;
    return ok();
}

Status ParameterServer::take_answer(size_t server) {
    if (!answers_[server].missing) return ok();
    WEFT_TRY(links_[server]->wait());
    answers_[server].missing = false;
    const ServerHeader header = header_of(links_[server]->received());
    if (header.kind == MessageKind::slow || header.kind == MessageKind::ended)
        return fail(header.kind == MessageKind::slow ? error::train_server_slow : error::train_server_ended,
                    "the server on rank {} has ended the training: {}", server, header.sentence)
            .about({.rank = header.rank >= 0 ? header.rank : int(server)});
    answers_[server].newest = {header.step, header.slowest_clock};
    return ok();
}

Status ParameterServer::take_answers() {
    for (size_t server = 0; server < links_.size(); ++server) WEFT_TRY(take_answer(server));
    return ok();
}

Status ParameterServer::check_unfinished(const char* function) const {
    WEFT_TRY(usable());
    if (!finished_) return ok();
    return fail(error::train_server_order, "this worker has finished: call {} before weftTrainServerFinish", function);
}

Status ParameterServer::push(weftStream_t callers) {
    WEFT_TRY(check_unfinished("weftTrainServerPush"));
    if (!may_push_)
        return fail(error::train_server_order,
                    "this worker has pushed its gradients of this step already: with config.accepted, call "
                    "weftTrainServerPull before the next weftTrainServerPush");
    WEFT_TRY(put_gradients(callers));
    for (size_t server = 0; server < links_.size(); ++server)
        WEFT_TRY(ended_by(send(*links_[server], server, MessageKind::push, answers_[server].pulled.steps,
                               parts_[server].message_bytes)));
    ++pushed_;
    may_push_ = rules_.accepted == 0;
    return ok();
}

Status ParameterServer::pull(weftStream_t callers) {
    WEFT_TRY(check_unfinished("weftTrainServerPull"));
    WEFT_TRY(ended_by(space_->synchronize()));  // the last pull's values are read before new ones come
    for (size_t server = 0; server < links_.size(); ++server)
        WEFT_TRY(ended_by(send(*links_[server], server, MessageKind::pull, 0, server_header_bytes)));
    WEFT_TRY(ended_by(take_answers()));
    WEFT_TRY(ended_by(space_->follow(callers)));
    for (size_t server = 0; server < links_.size(); ++server) {
        for (const ServerKey& key : parts_[server].keys)
            WEFT_TRY(ended_by(space_->copy(key.tensor.data, links_[server]->received() + key.offset_bytes,
                                           element_bytes(key.tensor))));
        answers_[server].pulled = answers_[server].newest;
    }
    WEFT_TRY(ended_by(space_->lead(callers)));
    may_push_ = true;
    return ok();
}

Status ParameterServer::finish() {
    WEFT_TRY(usable());
    if (finished_) return ok();
    for (size_t server = 0; server < links_.size(); ++server)
        WEFT_TRY(ended_by(send(*links_[server], server, MessageKind::finish, 0, server_header_bytes)));
    WEFT_TRY(ended_by(take_answers()));
    finished_ = true;
    for (const auto& link : links_) link->end();
    return ok();
}

ServerCounters ParameterServer::counters() const {
    if (state_) return state_->counters();
    ServerCounters counters;
    counters.applied = pushed_;
    for (const Answers& each : answers_) counters.steps = std::max(counters.steps, each.pulled.steps);
    return counters;
}

uint64_t ParameterServer::slowest_clock() const {
    uint64_t lowest = UINT64_MAX;
    for (const Answers& each : answers_) lowest = std::min(lowest, each.pulled.slowest_clock);
    return is_server() ? 0 : lowest;
}

}  // namespace weft::internal::train
