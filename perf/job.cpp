// job.cpp: communicators for a launcher's processes and for threads.
#include "job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>
#include <thread>

#include "src/base/printing.hpp"
#include "src/launchers/launcher_family.hpp"

namespace perf {
namespace {

weftConfig_t config_of(const Arguments& arguments) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.commName = "perf";
    if (arguments.timeout_s > 0) config.timeoutMs = int64_t(arguments.timeout_s) * 1000;
    return config;
}

int complain(const std::string& program, const std::string& sentence) {
    weft::internal::print_error("{}: {}\n", program, sentence);
    return 1;
}

int complain(const std::string& program, const char* call, weftResult_t result) {
    const char* sentence = weftGetLastError(nullptr);
    return complain(program, fmt::format("{}: {}", call, *sentence ? sentence : weftGetErrorString(result)));
}

// The rank within the host, from the launcher. The communicator rejects variables of which only some are set.
int local_rank() {
    const auto family = weft::internal::find_family();
    if (!family || *family == nullptr) return 0;
    const auto place = weft::internal::read_launched_rank(**family);
    return place ? std::max(place->local_rank, 0) : 0;
}

// The GPU of a rank, current in this thread; null if the user asks for none.
std::unique_ptr<Gpu> gpu_for(const Arguments& arguments, int index) {
    return arguments.gpus > 0 ? Gpu::use(index / arguments.ranks_per_gpu, arguments.null_stream) : nullptr;
}

// Takes over the communicator: destroys it after the body, aborts it after a failure.
int run_rank(const std::string& program, weftComm_t comm, Gpu* gpu, const std::function<int(Rank&)>& body) {
    int index = -1;
    (void)weftCommUserRank(comm, &index);
    try {
        if (gpu) gpu->make_current();
        Rank rank(comm, gpu);
        const int status = body(rank);
        const weftResult_t result = weftCommDestroy(comm);
        return result == weftSuccess ? status : complain(program, "weftCommDestroy", result);
    } catch (const Failure& failure) {
        complain(program, fmt::format("rank {}: {}", index, failure.what()));
    } catch (const std::bad_alloc&) {
        complain(program, fmt::format("rank {}: out of memory: lower -e", index));
    }
    (void)weftCommAbort(comm);
    return 1;
}

// Without -p 1, all ranks join in one group on this thread. With it, each rank joins on its own thread.
int run_threads(const std::string& program, const Arguments& arguments, const std::function<int(Rank&)>& body) {
    const weftConfig_t config = config_of(arguments);
    const size_t count = size_t(arguments.ranks());
    weftUniqueId id;
    if (weftResult_t result = weftGetUniqueId(&id); result != weftSuccess)
        return complain(program, "weftGetUniqueId", result);
    std::vector<std::unique_ptr<Gpu>> gpus;
    for (size_t i = 0; i < count; ++i) gpus.push_back(gpu_for(arguments, int(i)));
    std::vector<weftComm_t> comms(count);
    const auto join = [&](size_t i) {
        if (gpus[i]) gpus[i]->make_current();
        return weftCommInitRankConfig(&comms[i], int(count), id, int(i), &config);
    };
    if (!arguments.parallel_init) {
        weftResult_t result = weftGroupStart();
        for (size_t i = 0; i < count && result == weftSuccess; ++i) result = join(i);
        if (weftResult_t ended = weftGroupEnd(); result == weftSuccess) result = ended;
        if (result != weftSuccess) return complain(program, "weftCommInitRankConfig in a group", result);
    }
    const auto serve = [&](size_t i) {
        try {
            const weftResult_t result = arguments.parallel_init ? join(i) : weftSuccess;
            if (result != weftSuccess) return complain(program, "weftCommInitRankConfig", result);
            return run_rank(program, comms[i], gpus[i].get(), body);
        } catch (const Failure& failure) {
            return complain(program, failure.what());
        }
    };
    std::vector<int> statuses(count);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) try {
            threads.emplace_back([&, i] { statuses[i] = serve(i); });
        } catch (const std::system_error& error) {
            statuses[i] = complain(program, fmt::format("rank {}: its thread could not be started: {}; `ulimit -u` and "
                                                        "the container's pids limit say how many there may be",
                                                        i, error.what()));
            if (!arguments.parallel_init) (void)weftCommAbort(comms[i]);
        }
    for (std::thread& thread : threads) thread.join();
    return *std::max_element(statuses.begin(), statuses.end());
}

}  // namespace

int run_ranks(const std::string& program, const Arguments& arguments, const std::function<int(Rank&)>& body) try {
    const std::unique_ptr<Gpu> gpu = gpu_for(arguments, local_rank());
    // Weft reads the launchers' variables. A communicator of one rank means that there is no launcher.
    const weftConfig_t config = config_of(arguments);
    weftComm_t comm = nullptr;
    weftResult_t result = weftCommInitFromEnvironment(&comm, &config);
    if (result != weftSuccess) return complain(program, "weftCommInitFromEnvironment", result);
    // the processes are the ranks, if there are several
    const bool alone = arguments.threads == 1 && arguments.gpus <= 1;
    if (arguments.ranks() == 1) return run_rank(program, comm, gpu.get(), body);
    int launched = 0, index = 0;
    if (result = weftCommCount(comm, &launched); result == weftSuccess) result = weftCommUserRank(comm, &index);
    if (result != weftSuccess) return complain(program, "weftCommUserRank", result);
    if (alone && launched > 1) return run_rank(program, comm, gpu.get(), body);
    if (result = weftCommDestroy(comm); result != weftSuccess) return complain(program, "weftCommDestroy", result);
    if (launched == 1) return run_threads(program, arguments, body);
    if (index == 0)
        complain(program,
                 fmt::format("-t {} -g {} under a launcher that started {} processes: ranks are either processes or "
                             "threads, so leave them at 1 or start one process",
                             arguments.threads, std::max(1, arguments.gpus), launched));
    return 2;
} catch (const Failure& failure) {
    return complain(program, failure.what());
}

}  // namespace perf
