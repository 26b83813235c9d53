// parameter_server.hpp: asynchronous training: workers push gradients to servers and pull parameters from them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/train/memory_space.hpp"
#include "src/train/model.hpp"
#include "src/train/peers.hpp"
#include "src/train/server/host_copies.hpp"
#include "src/train/server/server_link.hpp"
#include "src/train/server/server_message.hpp"
#include "src/train/server/server_state.hpp"

namespace weft::internal::train {

// The first ranks are servers, the others are workers. Thread-bound, except abort(), which is thread-safe. A server's
// serve() has a thread for each worker. Messages are host memory, and so are a server's values during serve(). Ranks whose
// parameters lie on a device copy them there and back, by the stream of their space.
class ParameterServer {
  public:
    // All ranks of `comm` call it, also one that has failed: `own` is its failure. The values of rank 0 count.
    // Without a failure the parameters lie in `space`; ranks may differ in its kind.
    static Result<std::shared_ptr<ParameterServer>> make(Status own, std::vector<Tensor> parameters,
                                                         const ServerRules& rules, std::unique_ptr<MemorySpace> space,
                                                         weftComm_t comm);
    ParameterServer(const ParameterServer&) = delete;
    ParameterServer& operator=(const ParameterServer&) = delete;
    ~ParameterServer();

    int parameter_count() const { return int(parameters_.size()); }
    bool is_server() const { return state_ != nullptr; }
    const MemorySpace& space() const { return *space_; }
    // The rank that keeps a parameter.
    int owner(int parameter) const { return owners_[size_t(parameter)]; }

    // Of a server. Returns when all workers have finished.
    Status serve();
    // Of a worker. push() waits for the gradients, which may be work of the caller's stream, but not for the update.
    Status push(weftStream_t callers);
    Status pull(weftStream_t callers);
    Status finish();

    // On a worker: its own pushes, and the facts of its newest pull.
    ServerCounters counters() const;
    // Of a worker, at its newest pull.
    uint64_t slowest_clock() const;
    void abort();
    Status settle() { return ok(); }
    // After an exception of a call.
    void end_by_exception() noexcept { abort(); }

  private:
    ParameterServer(std::vector<Tensor> parameters, const ServerRules& rules, std::unique_ptr<MemorySpace> space)
        : space_(std::move(space)), parameters_(std::move(parameters)), rules_(rules) {}
    void lay_out(bool serves);
    Status connect();
    Status usable() const;
    Status ended_by(Status status);
    // Of a server.
    void serve_worker(int worker);
    enum class Served { more, finished, failed };
    Result<Served> answer(int worker);
    // Of a worker.
    Status send(ServerLink& link, size_t server, MessageKind kind, uint64_t step, size_t bytes);
    Status take_answer(size_t server);
    Status take_answers();
    Status check_unfinished(const char* function) const;
    // Copies the gradients to the messages, and checks them there.
    Status put_gradients(weftStream_t callers);
    Status check_gradients() const;

    // The parameters of a server, and its messages.
    struct Part {
        std::vector<ServerKey> keys;
        size_t message_bytes = 0;
    };
    struct Answers {
        bool missing = false;  // to the last message
        ServerAnswer newest, pulled;
    };

    std::unique_ptr<MemorySpace> space_;
    std::vector<Tensor> parameters_;
    HostCopies copies_;  // released on a worker after make()
    ServerRules rules_;
    std::unique_ptr<Peers> peers_;
    std::vector<int> owners_;                         // of each parameter: its server
    std::vector<Part> parts_;                         // of each server
    std::unique_ptr<ServerState> state_;              // null on a worker
    std::vector<std::unique_ptr<ServerLink>> links_;  // to all workers, or to all servers
    std::vector<Answers> answers_;                    // of a worker, for each server
    uint64_t pushed_ = 0;
    bool may_push_ = true, finished_ = false;
    Status failure_;
};

}  // namespace weft::internal::train
