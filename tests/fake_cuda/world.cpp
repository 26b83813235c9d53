#include "tests/fake_cuda/world.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/fake_cuda/control.hpp"
#include "tests/fake_cuda/memory.hpp"
#include "tests/fake_cuda/work.hpp"

namespace weft::internal::fake {

namespace {

std::atomic<uint64_t> generation{1};

void make_devices(World& all) {
    for (int device = 0; device < all.setting.gpus; ++device) {
        all.devices.push_back(std::make_unique<Device>());
        all.devices.back()->context.device = device;
        all.devices.back()->multiprocessors = std::make_unique<Multiprocessors>(all.setting.multiprocessors);
    }
}

std::string first_setting() {
    const char* text = getenv("FAKE_CUDA");
    if (text == nullptr) return "";
    if (text[0] != '@') return text;
    std::ifstream file(text + 1);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
}

// The leaks when the process ends.
struct AtExit {
    ~AtExit() {
        World& all = world();
        if (all.initialised_by.load() != getpid()) return;
        const std::string left = leaks();
        if (left.empty()) return;
        std::fprintf(stderr, "fake CUDA driver: not given back:\n%s", left.c_str());
        if (all.setting.leaks_fatal) _exit(86);
    }
} at_exit;

int device_or_all(std::istringstream& words) {
    std::string word;
    words >> word;
    return word == "*" ? -1 : std::stoi(word);
}

}  // namespace

void Setting::read(const std::string& statements) {
    std::string text = statements;
    for (char& letter : text)
        if (letter == '\n') letter = ';';
    std::istringstream all(text);
    for (std::string statement; std::getline(all, statement, ';');) {
        std::istringstream words(statement);
        std::string name;
        if (!(words >> name)) continue;
        int one = 0, other = 0;
        if (name == "gpus") {
            words >> gpus;
        } else if (name == "version") {
            words >> version;
        } else if (name == "sm") {
            words >> sm;
        } else if (name == "multiprocessors") {
            words >> multiprocessors;
        } else if (name == "multicast") {
            words >> multicast;
        } else if (name == "memory_mb") {
            words >> one;
            memory_bytes = size_t(one) << 20;
        } else if (name == "attribute") {
            const int device = device_or_all(words);
            words >> one >> other;
            attributes[{device, one}] = other;
        } else if (name == "p2p") {
            const int from = device_or_all(words), to = device_or_all(words);
            std::string how;
            words >> how;
            peers[{from, to}] = how == "lies" ? 2 : std::stoi(how);
        } else if (name == "nvlink") {
            std::string remote;
            words >> one >> other >> remote;
            links.push_back({one, other,
                             remote == "switch"   ? -1
                             : remote == "down"   ? -2
                             : remote == "hidden" ? -3
                                                  : std::stoi(remote)});
        } else if (name == "c2c") {
            int mbs = 0;
            words >> one >> other >> mbs;
            c2c[one] = {other, mbs};
        } else if (name == "lost") {
            words >> one;
            lost.insert(one);
        } else if (name == "fabric") {
            const int device = device_or_all(words);
            words >> other;
            cliques[device] = unsigned(other);
        } else if (name == "imex") {
            words >> imex;
        } else if (name == "fault") {
            Fault fault;
            std::string what;
            words >> fault.function >> fault.call >> what;
            if (what == "sleep")
                words >> fault.sleep_ms;
            else if (what == "dies")
                fault.dies = true;
            else
                fault.code = std::stoi(what);
            faults.push_back(fault);
        } else if (name == "sync") {
            std::string function;
            words >> function >> one;
            if (one != 0)
                syncs.insert(function);
            else
                syncs.erase(function);
        } else if (name == "stack") {
            std::string prefix;
            words >> prefix >> one;
            stacks[prefix] = one;
        } else if (name == "slices") {
            words >> slices >> slice_ms;
        } else if (name == "local_memory") {
            words >> local_bytes;
        } else if (name == "queue") {
            words >> queue;
        } else if (name == "queues") {
            words >> queues;
        } else if (name == "leaks") {
            words >> name;
            leaks_fatal = name == "fatal";
        } else {
            throw std::runtime_error("fake CUDA driver: unknown statement: " + statement);
        }
        if (words.fail()) throw std::runtime_error("fake CUDA driver: cannot read: " + statement);
    }
}

int Setting::peer(int from, int to) const {
    for (const auto& key : {std::pair(from, to), std::pair(from, -1), std::pair(-1, to), std::pair(-1, -1)})
        if (const auto found = peers.find(key); found != peers.end()) return found->second;
    return 1;
}

int Setting::attribute(int device, int number, int standard) const {
    for (int each : {device, -1})
        if (const auto found = attributes.find({each, number}); found != attributes.end()) return found->second;
    return standard;
}

const unsigned* Setting::clique_of(int device) const {
    for (int each : {device, -1})
        if (const auto found = cliques.find(each); found != cliques.end()) return &found->second;
    return nullptr;
}

int Setting::stack(const std::string& kernel) const {
    int bytes = 0;
    for (const auto& [prefix, of_these] : stacks)
        if (kernel.rfind(prefix, 0) == 0) bytes = std::max(bytes, of_these);
    return bytes;
}

World& world() {
    // Never destroyed: threads of streams may outlive main().
    static World* all = [] {
        auto* made = new World;
        made->setting.read(first_setting());
        make_devices(*made);
        return made;
    }();
    return *all;
}

ThreadState& this_thread() {
    // Static objects may call when the main thread's own are gone, as they may the real driver.
    static ThreadState main_thread;
    if (gettid() == getpid()) return main_thread;
    static thread_local ThreadState state;
    if (state.generation != generation.load()) {
        state = {};
        state.generation = generation.load();
    }
    return state;
}

CUresult enter(const char* function, bool before_init) {
    World& all = world();
    int sleep_ms = 0;
    bool waits = false;
    CUresult result = CUDA_SUCCESS;
    {
        std::lock_guard lock(all.mutex);
        ++all.calls[function];
        waits = all.setting.syncs.count(function) != 0;
        for (Fault& fault : all.setting.faults) {
            if (fault.function != function) continue;
            ++fault.seen;
            if (fault.call != 0 && fault.seen != fault.call) continue;
            sleep_ms += fault.sleep_ms;
            if (fault.dies) kill(getpid(), SIGKILL);
            if (fault.code != 0) result = CUresult(fault.code);
        }
        if (result == CUDA_SUCCESS && !before_init) {
            // Neither before cuInit, nor in a child after fork.
            if (all.initialised_by.load() != getpid()) result = CUDA_ERROR_NOT_INITIALIZED;
            if (this_thread().in_callback) result = CUDA_ERROR_NOT_PERMITTED;
        }
    }
    if (sleep_ms > 0) {
        fprintf(stderr, "fake CUDA driver: %s sleeps\n", function);  // for who waits for that
        const timespec pause{sleep_ms / 1000, sleep_ms % 1000 * 1'000'000L};
        nanosleep(&pause, nullptr);
    }
    if (waits && !this_thread().contexts.empty()) wait_all(outstanding(this_thread().contexts.back()));
    return result;
}

CUresult current(Context*& context) {
    ThreadState& state = this_thread();
    if (state.contexts.empty() || state.contexts.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context = state.contexts.back();
    std::lock_guard lock(world().mutex);
    if (context->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->error;
}

CUresult check_device(int device) {
    std::lock_guard lock(world().mutex);
    return device >= 0 && device < world().setting.gpus ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

std::string leaks() {
    World& all = world();
    std::lock_guard lock(all.mutex);
    std::string text;
    for (const auto& device : all.devices)
        if (device->context.retained > 0)
            text += "the context of device " + std::to_string(device->context.device) + ", " +
                    std::to_string(device->context.retained) + " times\n";
    const auto count = [&](size_t number, const char* what) {
        if (number > 0) text += std::to_string(number) + " " + what + "\n";
    };
    count(all.contexts.size(), "contexts that were made");
    count(all.streams.size(), "streams");
    count(all.events.size(), "events");
    count(all.graphs.size(), "graphs");
    count(all.executables.size(), "executable graphs");
    count(all.objects.size(), "user objects");
    count(all.captures.size(), "captures");
    list_memory_leaks(text);
    return text;
}

std::string reset(const std::string& setting) {
    World& all = world();
    const std::string left = leaks();
    std::vector<Done> workers;
    {
        std::lock_guard lock(all.mutex);
        for (const auto& [handle, stream] : all.streams) stop_stream(stream);
        for (const auto& [thread, stream] : all.per_thread) stop_stream(stream);
        for (const auto& device : all.devices)
            if (device->context.legacy) stop_stream(device->context.legacy);
        workers = std::move(all.workers);
    }
    wait_all(workers);

    std::lock_guard lock(all.mutex);
    forget_memory();
    all.captures.clear();
    all.streams.clear();
    all.spare_handles.clear();
    all.per_thread.clear();
    all.workers.clear();
    all.events.clear();
    all.graphs.clear();
    all.executables.clear();
    all.objects.clear();
    all.contexts.clear();
    all.calls.clear();
    all.devices.clear();
    all.initialised_by.store(0);
    all.setting = {};
    all.setting.read(setting);
    ++generation;
    make_devices(all);
    return left;
}

void add_setting(const std::string& statements) {
    std::lock_guard lock(world().mutex);
    world().setting.read(statements);
}

int calls(const std::string& function) {
    std::lock_guard lock(world().mutex);
    return world().calls[function];
}

int calls() {
    std::lock_guard lock(world().mutex);
    int sum = 0;
    for (const auto& [function, count] : world().calls) sum += count;
    return sum;
}

int streams_destroyed_early() {
    std::lock_guard lock(world().mutex);
    return world().destroyed_early;
}

int uses_of_destroyed_streams() {
    std::lock_guard lock(world().mutex);
    return world().destroyed_uses;
}

int running_blocks(int device) { return world().devices[size_t(device)]->multiprocessors->running(); }

void* make_context(int device) {
    std::lock_guard lock(world().mutex);
    Context& made = *world().contexts.emplace_back(std::make_unique<Context>());
    made.device = device;
    made.retained = 1;
    return &made;
}

void destroy_context(void* context) {
    std::lock_guard lock(world().mutex);
    std::erase_if(world().contexts, [&](const auto& each) { return each.get() == context; });
}

int last_blocks() {
    std::lock_guard lock(world().mutex);
    return world().last_blocks;
}

int last_priority() {
    std::lock_guard lock(world().mutex);
    return world().last_priority;
}

}  // namespace weft::internal::fake
