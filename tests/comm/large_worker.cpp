// large_worker.cpp: one rank of a job, a process or several threads of one, that makes calls on very many elements. It
// checks each element of the results, over the clients' interface only.
// It prints `served collective/algorithm` or `called ..` for each call, `refused ..` for rows that cannot serve.
//
// Arguments, each `name=value`:
//
//   count=N       elements of the buffer, or of each part of parted calls
//   calls=A,B     any of all_reduce, rooted, parted, uneven, messages, windows
//
//   type=int8     or float; sums are exact
//   hosts=H       number of simulated hosts; 0: this one
//   threads=T     ranks as threads of this process; 0: a launcher's
//
//   memory=shared weftHostAlloc memory, else private
//   rows=all      each algorithm that can serve a call; `chosen`: Weft's choice; `new`: those not in `but`
//   but=A,B       see above, as collective/algorithm
#include <sys/mman.h>
#include <unistd.h>
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Bytes = std::vector<std::byte>;

// Data repeat after this much: 257 is prime, so what lies any power of two from its place is found.
constexpr size_t period_bytes = 257 * 4096;
// Of uneven parts all but the largest.
constexpr size_t small_part = 1'000'003;

void demand(bool good, const std::string& what) {
    if (!good) throw std::runtime_error(what);
}

std::vector<std::string> list_of(const std::string& text) {
    std::vector<std::string> words;
    std::stringstream stream(text);
    for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
    return words;
}
bool contains(const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

// One period; positions are bytes from where the repeated data begin.
struct Data {
    Bytes block = Bytes(period_bytes);

    template <class Element>
    static Data random(uint32_t seed, int most) {
        Data data;
        std::minstd_rand draw(seed + 1);
        for (size_t at = 0; at < period_bytes; at += sizeof(Element)) {
            const auto element = Element(int(draw() % unsigned(2 * most + 1)) - most);
            memcpy(&data.block[at], &element, sizeof element);
        }
        return data;
    }
    template <class Element>
    void add(const Data& other) {
        for (size_t at = 0; at < period_bytes; at += sizeof(Element)) {
            Element sum, more;
            memcpy(&sum, &block[at], sizeof sum);
            memcpy(&more, &other.block[at], sizeof more);
            sum = Element(sum + more);
            memcpy(&block[at], &sum, sizeof sum);
        }
    }
    template <class Use>  // use(block, offset, bytes): false ends it
    void each_run(size_t position, size_t bytes, Use&& use) const {
        for (size_t done = 0; done < bytes;) {
            const size_t at = (position + done) % period_bytes, run = std::min(period_bytes - at, bytes - done);
            if (!use(&block[at], done, run)) return;
            done += run;
        }
    }
    void write(std::byte* to, size_t position, size_t bytes) const {
        each_run(position, bytes, [&](const std::byte* from, size_t offset, size_t run) {
            memcpy(to + offset, from, run);
            return true;
        });
    }
    // The first byte of `in` that is another one.
    std::optional<size_t> difference(const std::byte* in, size_t position, size_t bytes) const {
        std::optional<size_t> found;
        each_run(position, bytes, [&](const std::byte* expected, size_t offset, size_t run) {
            if (memcmp(in + offset, expected, run) == 0) return true;
            size_t first = 0;
            while (in[offset + first] == expected[first]) ++first;
            found = offset + first;
            return false;
        });
        return found;
    }
};

struct Mapping {
    std::byte* base = nullptr;
    size_t bytes = 0;
    Mapping() = default;
    explicit Mapping(size_t wanted) : bytes(wanted) {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        demand(memory != MAP_FAILED, "no memory");
        base = static_cast<std::byte*>(memory);
    }
    ~Mapping() {
        if (base) munmap(base, bytes);
    }
    Mapping(const Mapping&) = delete;
};

// Data as long as wanted, which take one period of memory: to be sent from.
class Endless {
  public:
    Endless(const Data& data, size_t bytes) : mapping_((bytes / period_bytes + 2) * period_bytes) {
        const int file = memfd_create("data", MFD_CLOEXEC);
        demand(file >= 0 && write(file, data.block.data(), period_bytes) == ssize_t(period_bytes), "no memory file");
        for (size_t at = 0; at < mapping_.bytes; at += period_bytes)
            demand(mmap(mapping_.base + at, period_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED,
                   "the data cannot be mapped often enough");
        close(file);
    }
    const std::byte* at(size_t position) const { return mapping_.base + position % period_bytes; }

  private:
    Mapping mapping_;
};

struct Settings {
    std::map<std::string, std::string> given;
    std::string of(const std::string& name, const std::string& otherwise = "") const {
        const auto place = given.find(name);
        return place == given.end() ? otherwise : place->second;
    }
    size_t count() const { return strtoull(of("count").c_str(), nullptr, 10); }
    bool calls(const std::string& kind) const { return contains(list_of(of("calls")), kind); }
};

class Rank {
  public:
    Rank(weftComm_t comm, const Settings& settings) : comm_(comm), settings_(settings), count_(settings.count()) {
        demand(weftCommUserRank(comm, &rank_) == weftSuccess && weftCommCount(comm, &ranks_) == weftSuccess,
               weftGetLastError(nullptr));
        const bool floats = settings.of("type") == "float";
        type_ = floats ? weftFloat32 : weftInt8;
        element_ = floats ? 4 : 1;
        for (int rank = 0; rank < ranks_; ++rank) {
            data_.push_back(floats ? Data::random<float>(uint32_t(rank), 1 << 20)
                                   : Data::random<int8_t>(uint32_t(rank), 127 / ranks_));
            if (rank == 0)
                sum_ = data_[0];
            else
                floats ? sum_.add<float>(data_.back()) : sum_.add<int8_t>(data_.back());
        }
        const size_t parts = settings.calls("parted") ? size_t(ranks_) : 1;
        const size_t bytes = (parts * count_ + size_t(ranks_) * small_part) * element_;
        if (settings.of("memory") == "shared") {
            void* memory = nullptr;
            check(weftHostAlloc(&memory, bytes));
            buffer_ = static_cast<std::byte*>(memory);
        } else {
            private_ = std::make_unique<Mapping>(bytes);
            buffer_ = private_->base;
        }
        if (settings.calls("parted") || settings.calls("uneven") || settings.calls("messages") ||
            settings.calls("windows"))
            endless_ = std::make_unique<Endless>(data_[size_t(rank_)], bytes);
    }
    ~Rank() {
        if (!private_) (void)weftMemFree(buffer_);
    }

    void run() {
        if (settings_.calls("all_reduce")) each_row("all_reduce", 0, [&] { all_reduce(); });
        if (settings_.calls("rooted")) {
            each_row("broadcast", ranks_ - 1, [&] { broadcast(ranks_ - 1); });
            each_row("reduce", ranks_ - 1, [&] { reduce(ranks_ - 1); });
        }
        if (settings_.calls("parted")) {
            each_row("all_gather", 0, [&] { all_gather(); });
            each_row("reduce_scatter", 0, [&] { reduce_scatter(); });
            each_row("all_to_all", 0, [&] { all_to_all(); });
            each_row("gather", ranks_ - 1, [&] { gather(ranks_ - 1); });
            each_row("scatter", ranks_ - 1, [&] { scatter(ranks_ - 1); });
        }
        if (settings_.calls("messages")) call("messages", [&] { messages(); });
        if (settings_.calls("windows")) call("windows", [&] { windows(); });
        if (settings_.calls("uneven")) {
            call("all_gather_v", [&] { all_gather_v(); });
            call("all_to_all_v", [&] { all_to_all_v(); });
            call("gather_v", [&] { gather_v(ranks_ - 1); });
            call("scatter_v", [&] { scatter_v(ranks_ - 1); });
            call("reduce_scatter_v", [&] { reduce_scatter_v(); });  // the last: it keeps memory
        }
    }

  private:
    void check(weftResult_t code) const { demand(code == weftSuccess, weftGetLastError(comm_)); }
    size_t bytes_of(size_t count) const { return count * element_; }
    // Where a rank's data begin in this call: elsewhere than in the one before, so that no result is an old one.
    size_t position(size_t element = 0) const { return bytes_of(7919 * calls_ + element); }
    std::byte* at(size_t element) const { return buffer_ + bytes_of(element); }
    size_t part(int rank) const { return size_t(rank) * count_; }
    void fill(size_t element, const Data& data, size_t from, size_t count) const {
        data.write(at(element), position(from), bytes_of(count));
    }
    const Data& own() const { return data_[size_t(rank_)]; }
    void expect(size_t element, const Data& data, size_t from, size_t count) const {
        const auto wrong = data.difference(at(element), position(from), bytes_of(count));
        demand(!wrong, wrong ? "rank " + std::to_string(rank_) + ": " + name_ + ": of " +
                                   std::to_string(bytes_of(count)) + " bytes number " + std::to_string(*wrong) +
                                   " is wrong"
                             : "");
    }

    void call(const std::string& name, const std::function<void()>& body) {
        ++calls_;
        name_ = name;
        const auto begun = std::chrono::steady_clock::now();
        body();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
        if (rank_ == 0) printf("called %s, %.2f s\n", name.c_str(), took.count());
    }
    // Under each algorithm that can serve it.
    void each_row(const std::string& collective, int root, const std::function<void()>& body) {
        if (settings_.of("rows") == "chosen") return call(collective, body);
        const std::vector<std::string> but = list_of(settings_.of("but"));
        std::stringstream lines(explain(collective, root));
        for (std::string line; std::getline(lines, line);) {
            const std::string head = "candidate ";
            if (line.rfind(head, 0) != 0) continue;
            const std::string algorithm = line.substr(head.size(), line.find(':') - head.size()),
                              row = collective + "/" + algorithm;
            if (contains(but, row)) continue;
            weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
            config.algo = algorithm.c_str();
            check(weftCommSetCallConfig(comm_, &config));
            const bool serves = explain(collective, root).find("chosen: " + algorithm + " over") != std::string::npos;
            if (serves) call(row, body);
            if (rank_ == 0) printf("%s %s\n", serves ? "served" : "refused", row.c_str());
            check(weftCommSetCallConfig(comm_, nullptr));
        }
    }
    std::string explain(const std::string& collective, int root) const {
        std::string text(size_t(1) << 16, 0);
        check(weftCommExplainCollective(comm_, collective.c_str(), count_, type_, weftSum, root, text.data(),
                                        text.size(), nullptr));
        return text.c_str();
    }

    void all_reduce() {
        fill(0, own(), 0, count_);
        check(weftAllReduce(at(0), at(0), count_, type_, weftSum, comm_, nullptr));
        expect(0, sum_, 0, count_);
    }
    void broadcast(int root) {
        if (rank_ == root) fill(0, own(), 0, count_);
        check(weftBcast(at(0), count_, type_, root, comm_, nullptr));
        expect(0, data_[size_t(root)], 0, count_);
    }
    void reduce(int root) {
        fill(0, own(), 0, count_);
        check(weftReduce(at(0), rank_ == root ? at(0) : nullptr, count_, type_, weftSum, root, comm_, nullptr));
        expect(0, rank_ == root ? sum_ : own(), 0, count_);
    }
    void all_gather() {
        fill(part(rank_), own(), 0, count_);
        check(weftAllGather(at(part(rank_)), at(0), count_, type_, comm_, nullptr));
        for (int rank = 0; rank < ranks_; ++rank) expect(part(rank), data_[size_t(rank)], 0, count_);
    }
    void reduce_scatter() {
        fill(0, own(), 0, part(ranks_));
        check(weftReduceScatter(at(0), at(part(rank_)), count_, type_, weftSum, comm_, nullptr));
        expect(part(rank_), sum_, part(rank_), count_);
    }
    void all_to_all() {
        check(weftAlltoAll(endless_->at(position()), at(0), count_, type_, comm_, nullptr));
        for (int rank = 0; rank < ranks_; ++rank) expect(part(rank), data_[size_t(rank)], part(rank_), count_);
    }
    void gather(int root) {
        const size_t place = rank_ == root ? part(rank_) : 0;
        fill(place, own(), 0, count_);
        check(weftGather(at(place), rank_ == root ? at(0) : nullptr, count_, type_, root, comm_, nullptr));
        for (int rank = 0; rank_ == root && rank < ranks_; ++rank) expect(part(rank), data_[size_t(rank)], 0, count_);
    }
    void scatter(int root) {
        if (rank_ == root) fill(0, own(), 0, part(ranks_));
        const size_t place = rank_ == root ? part(rank_) : 0;
        check(weftScatter(rank_ == root ? at(0) : nullptr, at(place), count_, type_, root, comm_, nullptr));
        expect(place, data_[size_t(root)], part(rank_), count_);
    }

    // The part of rank 0 is the long one, so the others' begin far away.
    std::vector<size_t> uneven_counts() const {
        std::vector<size_t> counts(size_t(ranks_), small_part);
        counts[0] = count_;
        return counts;
    }
    static std::vector<size_t> places_of(const std::vector<size_t>& counts) {
        std::vector<size_t> places(counts.size());
        std::exclusive_scan(counts.begin(), counts.end(), places.begin(), size_t(0));
        return places;
    }
    void all_gather_v() {
        const std::vector<size_t> counts = uneven_counts(), places = places_of(counts);
        const auto self = size_t(rank_);
        fill(places[self], own(), 0, counts[self]);
        check(
            weftAllGatherv(at(places[self]), counts[self], at(0), counts.data(), places.data(), type_, comm_, nullptr));
        for (size_t rank = 0; rank < data_.size(); ++rank) expect(places[rank], data_[rank], 0, counts[rank]);
    }
    // Each sends the long part to the next rank.
    void all_to_all_v() {
        const auto counts_of = [&](int long_one) {
            std::vector<size_t> counts(size_t(ranks_), small_part);
            counts[size_t((long_one + ranks_) % ranks_)] = count_;
            return counts;
        };
        const std::vector<size_t> sent = counts_of(rank_ + 1), taken = counts_of(rank_ - 1),
                                  send_places = places_of(sent), places = places_of(taken);
        check(weftAlltoAllv(endless_->at(position()), sent.data(), send_places.data(), at(0), taken.data(),
                            places.data(), type_, comm_, nullptr));
        for (int rank = 0; rank < ranks_; ++rank)
            expect(places[size_t(rank)], data_[size_t(rank)], places_of(counts_of(rank + 1))[size_t(rank_)],
                   taken[size_t(rank)]);
    }
    void gather_v(int root) {
        const std::vector<size_t> counts = uneven_counts(), places = places_of(counts);
        const auto self = size_t(rank_);
        const size_t place = rank_ == root ? places[self] : 0;
        fill(place, own(), 0, counts[self]);
        check(weftGatherv(at(place), counts[self], at(0), counts.data(), places.data(), type_, root, comm_, nullptr));
        for (size_t rank = 0; rank_ == root && rank < data_.size(); ++rank)
            expect(places[rank], data_[rank], 0, counts[rank]);
    }
    void scatter_v(int root) {
        const std::vector<size_t> counts = uneven_counts(), places = places_of(counts);
        const auto self = size_t(rank_);
        check(weftScatterv(endless_->at(position()), counts.data(), places.data(), at(0), counts[self], type_, root,
                           comm_, nullptr));
        expect(0, data_[size_t(root)], places[self], counts[self]);
    }
    void reduce_scatter_v() {
        const std::vector<size_t> counts = uneven_counts();
        const auto self = size_t(rank_);
        check(weftReduceScatterv(endless_->at(position()), at(0), counts.data(), type_, weftSum, comm_, nullptr));
        expect(0, sum_, places_of(counts)[self], counts[self]);
    }

    // A long one and a short one to the next rank.
    void messages() {
        const int next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
        check(weftGroupStart());
        check(weftSendRecv(endless_->at(position()), count_, next, at(0), count_, previous, type_, comm_, nullptr));
        check(weftSend(endless_->at(position(count_)), small_part, type_, next, comm_, nullptr));
        check(weftRecv(at(count_), small_part, type_, previous, comm_, nullptr));
        check(weftGroupEnd());
        expect(0, data_[size_t(previous)], 0, count_ + small_part);
    }
    // Into the next rank's window, and back out of it.
    void windows() {
        const int next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
        weftWindow_t window = nullptr;
        check(weftCommWindowRegister(comm_, at(0), bytes_of(count_ + small_part), &window, WEFT_WIN_DEFAULT));
        check(weftPut(endless_->at(position()), count_, type_, next, window, 0, comm_, nullptr));
        check(weftPutSignal(endless_->at(position(count_)), small_part, type_, next, window, bytes_of(count_), 0, 0, 0,
                            comm_, nullptr));
        const weftWaitSignalDesc_t signal{.opCnt = 1, .peer = previous, .sigIdx = 0, .ctx = 0};
        check(weftWaitSignal(1, &signal, comm_, nullptr));
        expect(0, data_[size_t(previous)], 0, count_ + small_part);
        const Mapping got(bytes_of(count_ + small_part));
        check(weftGet(got.base, count_, type_, next, window, 0, comm_, nullptr));
        check(weftGet(got.base + bytes_of(count_), small_part, type_, next, window, bytes_of(count_), comm_, nullptr));
        check(weftCommWindowDeregister(comm_, window));
        demand(!own().difference(got.base, position(), got.bytes), name_ + ": what weftGet brought is wrong");
    }

    weftComm_t comm_;
    const Settings& settings_;
    size_t count_;
    int rank_ = 0, ranks_ = 0;
    weftDataType_t type_ = weftInt8;
    size_t element_ = 1;
    std::vector<Data> data_;  // by rank
    Data sum_;
    std::unique_ptr<Mapping> private_;
    std::unique_ptr<Endless> endless_;  // this rank's data
    std::byte* buffer_ = nullptr;
    size_t calls_ = 0;
    std::string name_;
};

bool content(weftComm_t comm, const Settings& settings) try {
    Rank(comm, settings).run();
    demand(weftCommDestroy(comm) == weftSuccess, weftGetLastError(nullptr));
    return true;
} catch (const std::exception& wrong) {
    fprintf(stderr, "%s\n", wrong.what());
    (void)weftCommAbort(comm);
    return false;
}

}  // namespace

int main(int count, char** arguments) {
    Settings settings;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        const size_t equals = argument.find('=');
        if (equals == std::string::npos) return fprintf(stderr, "%s is not name=value\n", arguments[i]), 2;
        settings.given[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    if (const int threads = atoi(settings.of("threads", "0").c_str()); threads > 0) {
        std::vector<weftComm_t> comms(size_t(threads), nullptr);
        if (weftCommInitAll(comms.data(), threads, nullptr) != weftSuccess)
            return fprintf(stderr, "%s\n", weftGetLastError(nullptr)), 1;
        std::vector<char> good(comms.size());
        std::vector<std::thread> running;
        for (size_t rank = 0; rank < comms.size(); ++rank)
            running.emplace_back([&, rank] { good[rank] = content(comms[rank], settings); });
        for (std::thread& thread : running) thread.join();
        return std::count(good.begin(), good.end(), 0) > 0;
    }
    if (const int hosts = atoi(settings.of("hosts", "0").c_str()); hosts > 0) {
        // Before the library reads it.
        const int own = atoi(getenv("WEFT_RANK")) * hosts / atoi(getenv("WEFT_SIZE"));
        setenv("WEFT_HOSTID", ("node" + std::to_string(own)).c_str(), 1);
    }
    weftComm_t comm = nullptr;
    if (weftCommInitFromEnvironment(&comm, nullptr) != weftSuccess)
        return fprintf(stderr, "%s\n", weftGetLastError(nullptr)), 1;
    return content(comm, settings) ? 0 : 1;
}
