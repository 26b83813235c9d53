// elastic_replicas.cpp: a rank dies, and the others go on with its state from their memory: without a file, and
// without a new process.
//
//     weft run -n 4 --no-kill ./elastic_replicas
//
// The last rank kills itself, so the status of `weft run` is 137. The others print the step that they reach.
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>
#include <weft/train.hpp>

namespace {

constexpr std::size_t count = 1000;  // elements of the model, of which each rank has a part
constexpr int steps = 20, saves_each = 4, failing_step = 10;

// This rank's part of the model.
struct State {
    explicit State(const weft::Communicator& comm)
        : begin(count * comm.rank() / comm.ranks()), values(count * (comm.rank() + 1) / comm.ranks() - begin, 1.0) {}
    std::vector<weftTrainBox_t> boxes() {
        extent = values.size();
        weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
        box.name = "model";
        box.data = values.data();
        box.datatype = weftFloat64;
        box.dims = 1;
        box.shape = &count;
        box.offsets = &begin;
        box.extents = &extent;
        return {box};
    }

    std::size_t begin, extent = 0;
    std::vector<double> values;
};

// A training step: all elements depend on all ranks' parts.
void train(weft::Communicator& comm, State& state) {
    double sum = 0;
    for (const double value : state.values) sum += value;
    comm.all_reduce(&sum, 1);
    for (std::size_t i = 0; i < state.values.size(); ++i)
        state.values[i] = 0.5 * state.values[i] + sum / count + double((state.begin + i) % 8);
}

// The sum of the model after all steps, by one process.
double expected() {
    std::vector<double> model(count, 1.0);
    double sum = count;
    for (int step = 0; step < steps; ++step) {
        const double mean = sum / count;
        sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += model[i] = 0.5 * model[i] + mean + double(i % 8);
    }
    return sum;
}

int run() {
    weft::Communicator comm = weft::Communicator::from_environment();
    const int last = comm.ranks() - 1, first_ranks = comm.ranks();
    // Two neighbours keep each other's state. With one rank on each host a lost host loses no state.
    weft::train::Replica replica(1, 2);
    State state(comm);
    int step = 0;
    while (step < steps) {
        try {
            if (step % saves_each == 0 && comm.ranks() % 2 == 0) replica.save(comm, step + 1, state.boxes());
            if (step == failing_step && comm.ranks() == first_ranks && comm.rank() == last) std::raise(SIGKILL);
            train(comm, state);
            ++step;
        } catch (const weft::Error& error) {
            if (error.failed_rank() < 0) throw;
            std::fprintf(stderr, "rank %d: rank %d is lost\n", comm.rank(), error.failed_rank());
            comm = comm.shrink({error.failed_rank()}, WEFT_SHRINK_ABORT);
            state = State(comm);
            step = int(replica.load(comm, state.boxes())) - 1;
        }
    }
    double sum = 0;
    for (const double value : state.values) sum += value;
    comm.all_reduce(&sum, 1);
    const double difference = sum / expected() - 1;
    if (difference > 1e-12 || difference < -1e-12) throw std::runtime_error("the result is wrong");
    if (comm.rank() == 0) std::printf("%d of %d ranks reached step %d\n", comm.ranks(), first_ranks, step);
    return 0;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
