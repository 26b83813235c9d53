// fake.hpp: the parts of a libibverbs without hardware. Each process has an engine, a thread that plays its devices.
// Engines exchange messages through queues in a process and through Unix sockets between processes, so a killed process
// ends as its devices do. The caller's threads only append requests and take completions.
//
// Reliable connections: messages of a queue pair are numbered; the receiver takes them in order, acknowledges them, asks
// for lost ones again, and drops duplicates. The acknowledgement comes before the data is in memory, as with a NIC.
// Data lands in pieces and in any order, also of different writes. Only a receive completion of the same queue pair says
// that all earlier data has landed.
//
// Locks, outer before inner: the engine's, a pair's, a queue's, a channel's.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <istream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/drivers/verbs/layout.hpp"
#include "src/drivers/verbs/numbers.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace abi = verbs::abi;

int64_t now_us();

struct Port {
    std::atomic<bool> up{true}, grh_required{false};
    std::atomic<uint64_t> hole_bytes{0};  // larger requests are lost; 0: none
    int mtu = 5, layer = verbs::link_ethernet;
    uint16_t lid = 0;
    std::map<int, abi::GidEntry> gids;
    std::map<int, uint16_t> keys{{0, 0xffff}};
    std::map<int, int> refused;   // by index of a GID: the errno value of ibv_create_ah, and of the change to RTR
    std::map<int, int> pathless;  // of the change to RTR alone
    int width = 2, speed = 128;   // as in abi::PortAttributes: 4 lanes of 100 Gb/s
};

struct Device : abi::DeviceRow {
    std::deque<Port> ports = std::deque<Port>(1);  // by number less 1
    Port& port(int number) { return ports[size_t(number - 1)]; }
    bool has_port(int number) const { return number >= 1 && size_t(number) <= ports.size(); }
    std::atomic<bool> removed{false};
    std::atomic<uint64_t> requests{0};           // that this process sent on it
    std::atomic<int> connects_until_overrun{0};  // 0: none
};

// The state that the statements of api.hpp set. Guarded by its mutex, except the atomics.
struct World {
    static World& get();
    int run(const std::string& statements);
    // The errno value that a call of this name must fail with, or 0. Counts the call.
    int failing(const char* function);
    Device* find(const std::string& name);
    // The port "mlx5_0:2", or port 1 of "mlx5_0", and its number; null: there is none.
    Port* find_port(const std::string& name, int& number);
    uint64_t random(uint64_t below);

    std::mutex mutex;
    std::vector<std::unique_ptr<Device>> devices;
    bool default_devices = true;
    std::atomic<int> max_qp{1 << 16}, max_inline{512}, dma_buf{EBADF_value}, ece{0}, ece_first{3}, ece_second{3},
        fork_status{verbs::fork_unneeded};
    std::atomic<uint64_t> memlock{UINT64_MAX}, pinned{0};
    std::atomic<int> peermem{0}, unflushed{0};
    std::atomic<int> reorder{1}, hold_us{50}, late_us{0}, down_status{0};
    std::atomic<int> objects{0};
    std::atomic<uint64_t> lost{0}, resent{0}, duplicate{0}, rnr{0}, reordered{0}, watched{0}, landed{0}, held{0},
        flushes{0};
    std::atomic<uint64_t> watch_begin{0}, watch_end{0};

    struct Failure {
        std::string function;
        int calls, error;
    };
    std::vector<Failure> failures;
    std::atomic<int> failures_left{0};
    std::vector<std::pair<int, int>> completions;  // how many more succeed, then the status
    int old_key_after = 0;                         // writes until then; 0: never
    uint32_t first_put_key = 0;                    // of the first of them
    std::vector<std::pair<int, int>> losses;       // how many more arrive, then how many are lost
    std::vector<std::pair<int, std::string>> later;
    std::vector<std::string> due;
    std::mt19937_64 numbers{1};

    // For each write without immediate data: the key that it has in place of its own.
    uint32_t key_of_put(uint32_t key);
    // For each request: whether it is lost on its way, and statements of `after` that become due.
    bool loses_request();
    // For each success: the status that it shall have instead.
    int completion_status();
    std::vector<std::string> take_due();

  private:
    static constexpr int EBADF_value = 9;
    World();
    bool statement(const std::string& text);
    bool device_statement(const std::string& what, std::istream& words);
    bool port_statement(const std::string& what, Port& port, int number, std::istream& words);
    bool fault_statement(const std::string& what, std::istream& words);
};

struct Context : abi::Context {
    Device* of = nullptr;
    std::mutex lock;
    std::deque<abi::AsyncEvent> events;
};

struct Region : abi::Region {
    int access = 0;
    uint64_t address_of_peer = 0;  // what requests call the first byte
    uint64_t counted = 0;          // of the limit of pinned memory
    bool of_gpu = false;
    void* mapped = nullptr;  // of a dma-buf
    size_t mapped_bytes = 0;
};

struct Channel : abi::Channel {
    std::mutex lock;
    std::deque<abi::Queue*> events;
};

struct Pair;

struct QueueEntry {
    abi::Completion completion;
    Pair* pair;
    int freed = 0;  // places in its send queue
    bool receive = false;
};

struct Queue : abi::Queue {
    std::mutex lock;
    std::deque<QueueEntry> entries_held;
    std::atomic<size_t> count{0};
    bool armed = false, overrun = false;
    std::atomic<unsigned> signals{0}, acknowledged{0};  // of completion events that were fetched
    std::atomic<unsigned> async_fetched{0}, async_acknowledged{0};
};

enum class Kind : uint32_t { request, acknowledge, not_ready, resend, refused, response };

struct Header {
    uint32_t bytes = 0;  // of the payload
    Kind kind = Kind::request;
    uint32_t source = 0, target = 0;  // queue pairs
    uint64_t sequence = 0;
    int32_t opcode = 0, status = 0;
    uint32_t imm = 0, rkey = 0;
    uint64_t address = 0, length = 0;
    uint8_t gid[16] = {};  // of the target, if it is global
    uint16_t lid = 0;      // otherwise
    uint16_t global = 0;
    uint32_t ece = 0;  // the options that the sending queue pair uses
};

struct Message {
    Header header;
    std::shared_ptr<const std::vector<std::byte>> payload;
};

struct SendEntry {
    uint64_t id = 0, sequence = 0;
    int opcode = 0;
    uint32_t flags = 0, imm = 0, rkey = 0;
    uint64_t address = 0, bytes = 0;
    std::vector<abi::Sge> pieces;
    std::shared_ptr<std::vector<std::byte>> inlined;
    Message message;  // once it was sent
};

struct ReceiveEntry {
    uint64_t id = 0;
    std::vector<abi::Sge> pieces;
};

// Bytes that have arrived and are not in memory yet.
struct Piece {
    std::byte* target;
    const std::byte* source;
    size_t bytes;
    uint64_t unit;
    bool to_gpu;
};

// Bytes that a device has written to a GPU's memory, and kernels do not see yet.
struct HeldWrite {
    const Device* by;
    std::byte* target;
    std::vector<std::byte> bytes;
};

// A message that was acknowledged.
struct Unit {
    uint64_t number = 0;
    std::shared_ptr<const std::vector<std::byte>> data;
    size_t pieces = 0;  // that have not landed
    bool completes = false, reads = false;
    abi::Completion completion{};
    Message request;  // of a read
    int64_t not_before_us = 0;
};

struct Pair : abi::Pair {
    std::mutex lock;  // of the two queues and `limits`
    std::deque<SendEntry> posted;
    std::deque<ReceiveEntry> receives;
    abi::PairLimits limits{};
    int signal_all = 0;
    std::atomic<int> sends_used{0}, receives_used{0}, now{verbs::state::reset};
    std::atomic<unsigned> async_fetched{0}, async_acknowledged{0};

    // The engine's.
    abi::PairAttributes attributes{};
    std::deque<SendEntry> flying;
    size_t sent = 0;  // of `flying`
    int unsignaled = 0;
    uint64_t next_sequence = 0, expected = 0;
    int64_t deadline_us = 0, wait_until_us = 0;
    int retries = 0, rnr_retries = 0;
    int ece_own = 0;                        // the options of the device; -1: it has no ECE
    uint32_t ece_wanted = 0, ece_used = 0;  // set, and in use from RTR on
    uint64_t told = UINT64_MAX;             // the message that the peer was asked for again
    std::deque<Unit> units;
    std::vector<Piece> pieces;
    uint64_t next_unit = 0;
    int64_t land_after_us = 0;
};

inline Context& fake(abi::Context* context) { return *static_cast<Context*>(context); }
inline Pair& fake(abi::Pair* pair) { return *static_cast<Pair*>(pair); }
inline Queue& fake(abi::Queue* queue) { return *static_cast<Queue*>(queue); }
inline Region& fake(abi::Region* region) { return *static_cast<Region*>(region); }
inline Channel& fake(abi::Channel* channel) { return *static_cast<Channel*>(channel); }

void raise(Context& context, abi::AsyncEvent event);
void push(Queue& queue, const QueueEntry& entry);
[[noreturn]] void misuse(const char* text);  // what would hang with the real library

// The links to the engines of other processes. The engine's.
class Wire {
  public:
    Wire();
    ~Wire();
    int slot() const { return slot_; }
    // The process that owns a queue pair's number.
    static int slot_of(uint32_t pair) { return int(pair >> 14); }
    void send(const Message& message);
    std::deque<Message> receive();  // and sends what waited
    // Sleeps until something arrives, wake() is called, or the time is over.
    void sleep(int64_t us);
    void wake();

  private:
    struct Link {
        int fd = -1;
        std::deque<std::vector<std::byte>> out;
        size_t begun = 0;
    };
    struct Inbound {
        int fd;
        std::vector<std::byte> bytes;
    };
    void flush(Link& link);
    bool read(Inbound& inbound, std::deque<Message>& messages);

    int slot_ = -1, listener_ = -1, bell_ = -1;
    std::map<int, Link> links_;
    std::vector<Inbound> inbound_;
};

// The devices of this process. Its thread lives while a device is open.
class Engine {
  public:
    static Engine& get();
    void open(Context& context);
    void close(Context& context);
    uint32_t add(Pair& pair);
    void remove(Pair& pair);
    void add(Region& region);
    void remove(Region& region);
    int modify(Pair& pair, const abi::PairAttributes& attributes, int mask);
    void set_port(Device& device, int number, bool up);
    void raise_event(Device& device, int type, uint32_t pair);
    // `loses`: acknowledged data that is not in memory yet never comes there.
    void remove_device(Device& device, bool loses);
    // Something was posted.
    void notify() {
        work_.store(true);
        if (asleep_.exchange(false)) wire_->wake();
    }

  private:
    // engine.cpp
    void run();
    bool turn();
    bool progress(Pair& pair, int64_t now);
    void sleep_until(int64_t then, int64_t now) { sleep_us_ = std::min(sleep_us_, std::max<int64_t>(then - now, 1)); }
    int check(const Pair& pair, const abi::PairAttributes& attributes, int mask) const;
    void reset(Pair& pair);
    static void overrun(Pair& pair);
    // requester.cpp
    bool send_some(Pair& pair, int64_t now);
    bool prepare(Pair& pair, SendEntry& entry);
    bool check_deadline(Pair& pair, int64_t now);
    void start_deadline(Pair& pair, int64_t now);
    static bool awaits_answer(const Pair& pair);
    void end_first(Pair& pair);
    void handle_answer(Pair& pair, const Message& message);
    bool acknowledged(Pair& pair, uint64_t sequence);
    void take_response(Pair& pair, const Message& message);
    void go_back(Pair& pair, int64_t not_before_us);
    void complete(Pair& pair, const SendEntry& entry, int status);
    void fail(Pair& pair, int status);
    void flush(Pair& pair);
    // responder.cpp
    void deliver(const Pair& pair, const Message& message);
    void handle(const Message& message);
    void handle_request(Pair& pair, const Message& message);
    void answer(Pair& pair, Kind kind, uint64_t sequence, int status = 0);
    void refuse(Pair& pair, const Message& message, int status, int event);
    bool take_receive(Pair& pair, const Message& message, Unit& unit);
    void add_pieces(Pair& pair, Unit& unit, std::byte* target, size_t from, size_t bytes, bool to_gpu);
    bool of_gpu(uint32_t key) const;
    void show_writes(const Device& by);
    bool land(Pair& pair, int64_t now, bool all);
    void hold(Pair& pair, int64_t now);
    void land_piece(Pair& pair, size_t index);
    void finish(Pair& pair, Unit& unit);
    std::byte* memory(const Pair& pair, uint32_t key, uint64_t address, uint64_t bytes, int access) const;
    bool reachable(const Pair& pair, const Header& header) const;

    std::mutex life_;  // outside of mutex_: of the thread's start and end
    std::mutex mutex_;
    std::unique_ptr<Wire> wire_;
    std::thread thread_;
    std::set<Context*> contexts_;
    std::map<uint32_t, Pair*> pairs_;
    std::map<uint32_t, Region*> regions_;  // by lkey
    std::deque<Message> arrived_;
    std::deque<HeldWrite> held_;
    std::atomic<bool> work_{false}, asleep_{false}, ends_{false};
    uint32_t next_pair_ = 0, next_key_ = 1;
    int64_t sleep_us_ = 0;
};

// The port that the pair uses; port 1 before INIT.
inline Port& port_of(const Pair& pair) {
    return fake(pair.context).of->port(std::max<int>(1, pair.attributes.times.port_num));
}

inline constexpr uint32_t remote_key = 1u << 31;  // of an rkey, so that the two kinds of keys are not confused

}  // namespace weft::internal::test::fake_ibverbs
