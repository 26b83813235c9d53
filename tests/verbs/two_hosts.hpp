// two_hosts.hpp: two hosts of two ports each, in this process, over the fake libibverbs. Rank 0 has fake0 and fake1, rank 1
// has fake2 and fake3. fake0 and fake2 share a subnet, and so do the others.
#pragma once
#include <random>

#include "tests/verbs/connections.hpp"

namespace weft::internal::test {

inline verbs::Settings host_settings(int rank) {
    verbs::Settings settings = quick_settings(rank == 0 ? "=fake0,fake1" : "=fake2,fake3");
    settings.striped_bytes = 8'192;
    settings.no_lane_us = 60'000'000;
    return settings;
}

// One object in each program.
struct TwoHosts : WithSettings {
    TwoHosts() : WithSettings(with_devices()) {}
    static verbs::Settings with_devices() {
        fake_verbs().run(
            "device fake0; device fake1; device fake2; device fake3;"
            "gid fake2 2 0000:0000:0000:0000:0000:ffff:0a4d:0002 1 1; gid fake2 3 "
            "0000:0000:0000:0000:0000:ffff:0a4d:0002 "
            "2 1;"
            "gid fake3 2 0000:0000:0000:0000:0000:ffff:0a4d:0102 1 1; gid fake3 3 "
            "0000:0000:0000:0000:0000:ffff:0a4d:0102 "
            "2 1");
        return host_settings(0);
    }
};

// Every port and device as at the beginning.
inline void mend() {
    fake_verbs().run("no_faults; down_status 0; reorder 1; hold 50; late 0");
    for (const char* device : {"fake0", "fake1", "fake2", "fake3"})
        fake_verbs().run(fmt::format("restore {}; port {} up; hole {} 0", device, device, device));
}

// Messages from the caller's memory. They are random, and so may not change before they are sent.
struct Lent {
    static constexpr int buffers = 8;
    std::vector<std::byte> bytes;
    std::unique_ptr<RegisteredMemory> memory;
    std::vector<uint64_t> until = std::vector<uint64_t>(buffers);  // one more than the message that a buffer carries
};

// Memory that devices of a rank read and write.
struct Given {
    std::vector<std::byte> bytes;
    std::unique_ptr<RegisteredMemory> memory;
    explicit Given(size_t size, RangeKind kind = RangeKind::slots) : bytes(size) {
        memory = taken(verbs_transport().register_memory({.data = bytes.data(), .bytes = size, .kind = kind}));
    }
};

struct Lines {
    explicit Lines(const verbs::Settings& rank0 = host_settings(0), const verbs::Settings& rank1 = host_settings(1))
        : settings_{rank0, rank1} {
        mend();
    }
    ~Lines() { verbs::set_settings(host_settings(0)); }

    // `given`: the receiver's slots lie apart from their headers.
    void add(int from, int depth, size_t slot_bytes, bool lends = false, bool given = false) {
        Line line{.from = from, .depth = depth, .slot_bytes = slot_bytes, .receiver = {}, .sender = {}, .failure = {}};
        Blob blob;
        verbs::set_settings(settings_[1 - from]);
        ConnectionOptions receiving = ranks_.options(1 - from, line);
        if (given) {
            auto slots = std::make_unique<Given>(size_t(depth) * slot_bytes);
            receiving.slots = slots->bytes.data();
            receiving.slot_memory = slots->memory.get();
            given_.push_back(std::move(slots));
        }
        line.receiver = taken(verbs_transport().listen(receiving, blob));
        verbs::set_settings(settings_[from]);
        line.sender = taken(verbs_transport().connect(ranks_.options(from, line), blob));
        lines.push_back(std::move(line));
        Lent& of = lent.emplace_back();
        if (!lends) return;
        of.bytes.resize(Lent::buffers * slot_bytes);
        of.memory = taken(verbs_transport().register_memory(
            {.data = of.bytes.data(), .bytes = of.bytes.size(), .kind = RangeKind::user}));
    }
    bool send(size_t place) {
        Line& line = lines[place];
        Lent& of = lent[place];
        if (!of.memory) return line.send();
        const size_t buffer = line.sent % Lent::buffers;
        if (line.sender->sent() < of.until[buffer]) return (void)taken(line.sender->progress()), false;
        const size_t bytes = Line::length_of(line.sent, line.slot_bytes);
        std::byte* data = of.bytes.data() + buffer * line.slot_bytes;
        for (size_t i = 0; i < bytes; ++i) data[i] = Line::byte_of(line.sent, i);
        if (!taken(line.sender->post(data, of.memory.get(), {bytes, line.sent, uint32_t(line.sent * 7)}))) return false;
        of.until[buffer] = ++line.sent;
        return true;
    }
    // Sends and receives until `more` further messages of each line have arrived. `between` is called all the time.
    template <class Between>
    void run(uint64_t more, std::mt19937& random, Between between) {
        std::vector<uint64_t> ends;
        for (const Line& line : lines) ends.push_back(line.received + more);
        const bool done = eventually([&] {
            for (int turn = 0; turn < 2'000; ++turn) {
                const size_t place = random() % lines.size();
                Line& line = lines[place];
                if (line.sent < ends[place]) (void)send(place);
                (void)taken(line.sender->progress());
                (void)line.receive();
                between();
                bool all = true;
                for (size_t i = 0; i < lines.size(); ++i) all = all && lines[i].received == ends[i];
                if (all) return true;
            }
            return false;
        });
        REQUIRE(done);
    }
    // Whether a message arrives on each line. If not, the text of an error is in `why`.
    bool work(std::string& why) {
        std::mt19937 random(1);
        try {
            run(1, random);
        } catch (const std::runtime_error& error) {
            why = error.what();
        }
        return why.empty();
    }
    void run(uint64_t more, std::mt19937& random) {
        run(more, random, [] {});
    }

  private:
    std::vector<std::unique_ptr<Given>> given_;  // ends after the connections

  public:
    std::vector<Line> lines;
    std::vector<Lent> lent;

  private:
    TwoRanks ranks_;
    verbs::Settings settings_[2];
};

struct Hosts : Lines {
    Hosts(int rails, int pairs, bool lends = true) : Lines(with(0, rails, pairs), with(1, rails, pairs)) {
        add(0, 4, 60'000);
        add(1, 3, 20'000);
        add(0, 8, 300);
        add(1, 2, 40'000, lends);
    }
    static verbs::Settings with(int rank, int rails, int pairs) {
        verbs::Settings settings = host_settings(rank);
        settings.rails = rails;
        settings.pairs_per_rail = pairs;
        settings.pair.send_requests = 16;
        return settings;
    }
};

inline unsigned long requests_on(const std::string& device) { return fake_verbs().count(device.c_str()); }

}  // namespace weft::internal::test
