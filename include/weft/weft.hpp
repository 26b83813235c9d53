// weft.hpp: weft.h for C++17: owners instead of destroy calls, exceptions instead of codes. Header only.
//
//     weft::Communicator comm = weft::Communicator::from_environment();
//     comm.all_reduce(send.data(), receive.data(), send.size(), weftSum);
//
// Everything is in namespace weft. weft.h says for each call what it does and which errors it returns.
#ifndef WEFT_HPP
#define WEFT_HPP

#include <weft/weft.h>

#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

// A failed call: the code, the sentence of weftGetLastError in `what()`, and the data of weftGetLastErrorInfo.
class Error : public std::runtime_error {
  public:
    Error(weftResult_t code, const std::string& sentence, const weftErrorInfo_t& info = WEFT_ERROR_INFO_INITIALIZER)
        : std::runtime_error(sentence.empty() ? weftGetErrorString(code) : sentence), code_(code), info_(info) {}
    weftResult_t code() const noexcept { return code_; }
    // As "mismatch.count"; empty if no function of the library failed.
    const char* id() const noexcept { return info_.id; }
    int failed_rank() const noexcept { return info_.failedRank; }       // -1: unknown
    int peer() const noexcept { return info_.peer; }                    // -1: none, or unknown
    const char* operation() const noexcept { return info_.operation; }  // as "all_reduce"; null: unknown
    std::uint64_t sequence() const noexcept { return info_.sequence; }  // of the operation; 0: unknown

  private:
    weftResult_t code_;
    weftErrorInfo_t info_;
};

// Throws Error unless `result` is weftSuccess or weftInProgress, which a non-blocking communicator returns. Call it on
// the thread that made the call.
inline void check(weftResult_t result) {
    if (result == weftSuccess || result == weftInProgress) return;
    const std::string sentence = weftGetLastError(nullptr);
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(nullptr, &info);
    throw Error(result, sentence, info);
}

// The version of the loaded library, 10000 * major + 100 * minor + patch. The program was compiled against
// WEFT_VERSION_CODE.
inline int version() {
    int version = 0;
    check(weftGetVersion(&version));
    return version;
}

// The CUDA devices that this process sees.
inline int device_count() {
    int count = 0;
    check(weftGetDeviceCount(&count));
    return count;
}

// A line of Weft's log at INFO, for libraries on top of Weft.
inline void log_info(const std::string& text) { check(weftLogInfo(text.c_str())); }

// An id for one communicator. One rank makes it and sends it to all others. It holds a secret.
inline weftUniqueId make_unique_id() {
    weftUniqueId id;
    check(weftGetUniqueId(&id));
    return id;
}

// The id as 256 hexadecimal digits.
inline std::string to_text(const weftUniqueId& id) {
    std::string text;
    for (const char byte : id.internal) {
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

// The id of a text from to_text(). Throws Error with weftInvalidArgument if it is not 256 hexadecimal digits.
inline weftUniqueId unique_id_from_text(const std::string& text) {
    weftUniqueId id;
    bool right = text.size() == 2 * sizeof id.internal;
    const auto digit = [&](char letter) {
        if (letter >= '0' && letter <= '9') return letter - '0';
        if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
        if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
        right = false;
        return 0;
    };
    for (std::size_t i = 0; right && i < sizeof id.internal; ++i)
        id.internal[i] = static_cast<char>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    if (!right)
        throw Error(weftInvalidArgument, "a unique id in text is 256 hexadecimal digits; this has " +
                                             std::to_string(text.size()) + " characters");
    return id;
}

// The weftDataType_t of a C++ type. C++17 has no 16- and 8-bit floats: pass their weftDataType_t instead.
template <class T>
constexpr weftDataType_t datatype_of() {
    static_assert(std::is_arithmetic<T>::value && !std::is_same<T, bool>::value, "no weftDataType_t for this type");
    if constexpr (std::is_floating_point<T>::value) {
        static_assert(!std::is_floating_point<T>::value || sizeof(T) == 4 || sizeof(T) == 8,
                      "no weftDataType_t for long double");
        return sizeof(T) == 4 ? weftFloat32 : weftFloat64;
    } else {
        static_assert(std::is_floating_point<T>::value || sizeof(T) != 2, "no weftDataType_t for 16-bit integers");
        if (sizeof(T) == 1) return std::is_signed<T>::value ? weftInt8 : weftUint8;
        if (sizeof(T) == 4) return std::is_signed<T>::value ? weftInt32 : weftUint32;
        return std::is_signed<T>::value ? weftInt64 : weftUint64;
    }
}

// A stream for host memory (weftStreamCreate). Its thread carries out the calls that name it. Move-only. Thread-safe.
class Stream {
  public:
    explicit Stream(int priority = 0) { check(weftStreamCreateWithPriority(&handle_, priority)); }
    Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Stream() { (void)weftStreamDestroy(handle_); }

    operator weftHostStream_t() const noexcept { return handle_; }
    // The number of calls that the stream was given so far.
    std::uint64_t mark() const {
        std::uint64_t mark = 0;
        check(weftStreamMark(handle_, &mark));
        return mark;
    }
    // Whether the calls up to the mark are done. Throws the first error among them that was not reported yet.
    bool done(std::uint64_t mark = WEFT_STREAM_ALL) const {
        const weftResult_t state = weftStreamTest(handle_, mark);
        check(state);
        return state == weftSuccess;
    }
    // Waits until done(mark) and throws likewise. Throws weftTimeout after timeout_ms milliseconds; negative: never.
    void wait(std::uint64_t mark = WEFT_STREAM_ALL, std::int64_t timeout_ms = -1) const {
        check(weftStreamWait(handle_, mark, timeout_ms));
    }

  private:
    weftHostStream_t handle_ = nullptr;
};

// The calls of a group, made by Group::prepare(). They can be started many times. Move-only.
class Prepared {
  public:
    Prepared(Prepared&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Prepared& operator=(Prepared&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Prepared() { (void)weftPreparedDestroy(handle_); }
    void start() { check(weftPreparedStart(handle_)); }

  private:
    friend class Group;
    explicit Prepared(weftPrepared_t handle) : handle_(handle) {}
    weftPrepared_t handle_ = nullptr;
};

namespace detail {

// The place where the library writes a communicator's handle. Inside a group it does so at the end of the group, so the
// place must not move with its owner. A list of one or none, because a destructor passes it on without an allocation.
using HandlePlace = std::list<std::shared_ptr<weftComm_t>>;

// The open Groups of a thread, and the places whose owners were destroyed while a group still needed them.
struct ThreadGroups {
    int open = 0;
    HandlePlace orphans;

    static ThreadGroups& mine() {
        static thread_local ThreadGroups groups;
        return groups;
    }
    ~ThreadGroups() { destroy_orphans(); }
    // Destroys those that no group needs any more. A group may still write to a place without a communicator.
    void destroy_orphans() noexcept {
        orphans.remove_if([](const std::shared_ptr<weftComm_t>& place) {
            return *place && weftCommDestroy(*place) != weftInvalidUsage;
        });
    }
};

}  // namespace detail

// A failed call of a group: its number from 0, in the order of the calls, and its error.
struct CallError {
    std::uint64_t call;
    weftResult_t code;
    std::string sentence;
};

// An open group. end() carries its calls out and throws their first error. The destructor also ends the group, without
// an exception. If an exception leaves the outermost group, its calls are not carried out, because buffers may be gone.
// The other ranks still wait for them: abort() the communicators of these calls.
// Groups nest: the outermost one carries out all calls, also those of an inner group that an exception has left, so
// their buffers must live until then. Thread-bound.
class Group {
  public:
    Group() {
        check(weftGroupStart());
        ++detail::ThreadGroups::mine().open;
    }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() {
        if (!open_) return;
        const Closing closing(*this);
        const bool outermost = detail::ThreadGroups::mine().open == 1;
        if (outermost && std::uncaught_exceptions() > exceptions_) {
            weftPrepared_t prepared = nullptr;
            (void)weftGroupPrepare(&prepared);
            (void)weftPreparedDestroy(prepared);
        } else {
            (void)weftGroupEnd();
        }
    }
    void end() {
        const Closing closing(*this);
        check(weftGroupEnd());
    }
    // Ends the group and keeps its calls instead of carrying them out.
    Prepared prepare() {
        const Closing closing(*this);
        weftPrepared_t prepared = nullptr;
        check(weftGroupPrepare(&prepared));
        return Prepared(prepared);
    }
    // The failed calls of the group that this thread ended last, refused calls and calls that never began included.
    // Calls that are still in streams may fail later.
    static std::vector<CallError> errors() {
        std::vector<CallError> failed;
        std::uint64_t calls = 0;
        check(weftGroupGetCallCount(&calls));
        for (std::uint64_t call = 0; call < calls; ++call) {
            weftResult_t code = weftSuccess;
            const char* sentence = nullptr;
            check(weftGroupGetCallError(call, &code, &sentence));
            if (code != weftSuccess && code != weftInProgress) failed.push_back({call, code, sentence});
        }
        return failed;
    }

  private:
    struct Closing {
        explicit Closing(Group& group) { group.open_ = false; }
        ~Closing() {
            --detail::ThreadGroups::mine().open;
            detail::ThreadGroups::mine().destroy_orphans();
        }
    };
    bool open_ = true;
    int exceptions_ = std::uncaught_exceptions();
};

// Host memory of weftHostAlloc: zeroed, page aligned, mappable by other ranks of this host. Or device memory of
// weftMemAlloc. Move-only.
class MemBuffer {
  public:
    MemBuffer() = default;
    explicit MemBuffer(std::size_t bytes) : bytes_(bytes) { check(weftHostAlloc(&data_, bytes)); }
    // Memory of the current device. The host must not dereference data().
    static MemBuffer on_device(std::size_t bytes) {
        MemBuffer buffer;
        check(weftMemAlloc(&buffer.data_, bytes));
        buffer.bytes_ = bytes;
        return buffer;
    }
    MemBuffer(MemBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    MemBuffer& operator=(MemBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MemBuffer() { (void)weftMemFree(data_); }

    void* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }
    template <class T>
    T* as() const noexcept {
        return static_cast<T*>(data_);
    }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// A buffer registered by Communicator::register_buffer(). Destroy it before the buffer is freed; it deregisters then. A
// communicator that has ended has deregistered the buffer. Move-only. Thread-bound, with its communicator.
class Registration {
  public:
    // No registration.
    Registration() = default;
    Registration(Registration&& other) noexcept
        : comm_(std::exchange(other.comm_, nullptr)), handle_(std::exchange(other.handle_, nullptr)) {}
    Registration& operator=(Registration&& other) noexcept {
        std::swap(comm_, other.comm_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Registration() {
        if (handle_) (void)weftCommDeregister(comm_, handle_);
    }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    // Deregisters now and throws an error. After weftTimeout the buffer must stay, and the call may be repeated.
    void deregister() {
        check(weftCommDeregister(comm_, handle_));
        handle_ = nullptr;
    }

  private:
    friend class Communicator;
    Registration(weftComm_t comm, void* handle) : comm_(comm), handle_(handle) {}
    weftComm_t comm_ = nullptr;
    void* handle_ = nullptr;
};

// This process's membership in a group of ranks. The destructor leaves the group. Move-only. Thread-bound, except
// abort(), async_error(), ranks() and rank(), which are thread-safe.
class Communicator {
  public:
    // No communicator: get() is null, and every call throws.
    Communicator() = default;

    // Joins the communicator `id` of `ranks` ranks as `rank`; returns when all have joined. Inside a Group this object
    // has its communicator after end(), also if it was moved. config may be null.
    Communicator(int ranks, const weftUniqueId& id, int rank, const weftConfig_t* config = nullptr)
        : Communicator(made([&](weftComm_t* comm) { return weftCommInitRankConfig(comm, ranks, id, rank, config); })) {}

    // Joins the communicator that the launcher's environment describes; without a launcher, one of one rank.
    static Communicator from_environment(const weftConfig_t* config = nullptr) {
        return made([&](weftComm_t* comm) { return weftCommInitFromEnvironment(comm, config); });
    }

    // Ranks 0 to ranks - 1 of one communicator in this process: a thread for each, or one thread inside a Group.
    // Inside a Group they have their communicators after end().
    static std::vector<Communicator> all(int ranks) {
        const std::size_t count = ranks > 0 ? static_cast<std::size_t>(ranks) : 1;
        const std::shared_ptr<weftComm_t[]> handles(new weftComm_t[count]());
        std::vector<Communicator> communicators(count);
        for (std::size_t i = 0; i < count; ++i) communicators[i].place_.emplace_back(handles, &handles[i]);
        const weftResult_t result = weftCommInitAll(handles.get(), ranks, nullptr);
        if (result != weftSuccess && result != weftInProgress)
            for (Communicator& communicator : communicators)
                if (!communicator) communicator.place_.clear();  // nor will it be written
        check(result);
        return communicators;
    }

    Communicator(Communicator&&) noexcept = default;
    Communicator& operator=(Communicator&& other) noexcept {
        place_.swap(other.place_);
        return *this;
    }
    ~Communicator() {
        // A group still needs it: it is destroyed after the group.
        if (!place_.empty() && (!get() || weftCommDestroy(get()) == weftInvalidUsage)) {
            auto& orphans = detail::ThreadGroups::mine().orphans;
            orphans.splice(orphans.end(), place_);
        }
    }

    weftComm_t get() const noexcept { return place_.empty() ? nullptr : *place_.front(); }
    explicit operator bool() const noexcept { return get() != nullptr; }
    // Gives the weftComm_t to the caller, which must destroy it.
    weftComm_t release() noexcept {
        const weftComm_t comm = get();
        if (comm) place_.clear();
        return comm;
    }
    // Leaves now and throws an error.
    void destroy() { check(weftCommDestroy(release())); }
    // Makes a communicator of the ranks with this color >= 0, ordered by key; an empty object for a negative color. All
    // ranks call it. Inside a Group the new object has its communicator after end().
    Communicator split(int color, int key = 0, const weftConfig_t* config = nullptr) {
        Communicator child = made([&](weftComm_t* comm) { return weftCommSplit(get(), color, key, comm, config); });
        if (color < 0) child.place_.clear();
        return child;
    }
    // Makes a communicator without the ranks in `excluded`. The remaining ranks call it. With WEFT_SHRINK_ABORT this
    // communicator may have failed.
    Communicator shrink(std::vector<int> excluded, int flags = WEFT_SHRINK_DEFAULT,
                        const weftConfig_t* config = nullptr) {
        const int count = static_cast<int>(excluded.size());
        return made(
            [&](weftComm_t* comm) { return weftCommShrink(get(), excluded.data(), count, comm, config, flags); });
    }
    // Waits for this rank's calls on device memory. No call may follow.
    void finalize() { check(weftCommFinalize(get())); }
    // Stops the communicator on all ranks. Thread-safe. The destructor then does nothing.
    void abort() { check(weftCommAbort(get())); }

    int ranks() const {
        int count = 0;
        check(weftCommCount(get(), &count));
        return count;
    }
    int rank() const {
        int rank = 0;
        check(weftCommUserRank(get(), &rank));
        return rank;
    }
    // The number of its CUDA device; throws if it has none.
    int device() const {
        int device = 0;
        check(weftCommCuDevice(get(), &device));
        return device;
    }
    // Settings of the calls from now on; null: the communicator's own.
    void set_call_config(const weftCallConfig_t* config) { check(weftCommSetCallConfig(get(), config)); }
    // The error that has hit the communicator, or weftSuccess. Does not wait. weftInProgress: weftCommGetAsyncError.
    weftResult_t async_error() const {
        weftResult_t error = weftSuccess;
        check(weftCommGetAsyncError(get(), &error));
        return error;
    }
    // The sentence of the newest error of this communicator; empty if there was none.
    std::string last_error() const { return get() ? weftGetLastError(get()) : ""; }

    // Buffers of `count` elements each, equal (in place) or disjoint. Blocks on host memory without a stream, unless a
    // Group is open.
    void all_reduce(const void* send, void* receive, std::size_t count, weftDataType_t type, weftRedOp_t op,
                    weftStream_t stream = nullptr) {
        check(weftAllReduce(send, receive, count, type, op, get(), stream));
    }
    template <class T>
    void all_reduce(const T* send, T* receive, std::size_t count, weftRedOp_t op = weftSum,
                    weftStream_t stream = nullptr) {
        all_reduce(send, receive, count, datatype_of<T>(), op, stream);
    }
    // In place.
    template <class T>
    void all_reduce(T* buffer, std::size_t count, weftRedOp_t op = weftSum, weftStream_t stream = nullptr) {
        all_reduce(buffer, buffer, count, datatype_of<T>(), op, stream);
    }

    // A buffer with `parts` in its name has `count` elements for each rank. A buffer that a rank ignores may be null.
    template <class T>
    void broadcast(const T* send, T* receive, std::size_t count, int root, weftStream_t stream = nullptr) {
        check(weftBroadcast(send, receive, count, datatype_of<T>(), root, get(), stream));
    }
    template <class T>
    void broadcast(T* buffer, std::size_t count, int root, weftStream_t stream = nullptr) {
        check(weftBcast(buffer, count, datatype_of<T>(), root, get(), stream));
    }
    template <class T>
    void reduce(const T* send, T* receive, std::size_t count, int root, weftRedOp_t op = weftSum,
                weftStream_t stream = nullptr) {
        check(weftReduce(send, receive, count, datatype_of<T>(), op, root, get(), stream));
    }
    template <class T>
    void all_gather(const T* send, T* receive_parts, std::size_t count, weftStream_t stream = nullptr) {
        check(weftAllGather(send, receive_parts, count, datatype_of<T>(), get(), stream));
    }
    template <class T>
    void reduce_scatter(const T* send_parts, T* receive, std::size_t count, weftRedOp_t op = weftSum,
                        weftStream_t stream = nullptr) {
        check(weftReduceScatter(send_parts, receive, count, datatype_of<T>(), op, get(), stream));
    }
    template <class T>
    void all_to_all(const T* send_parts, T* receive_parts, std::size_t count, weftStream_t stream = nullptr) {
        check(weftAlltoAll(send_parts, receive_parts, count, datatype_of<T>(), get(), stream));
    }
    template <class T>
    void gather(const T* send, T* receive_parts, std::size_t count, int root, weftStream_t stream = nullptr) {
        check(weftGather(send, receive_parts, count, datatype_of<T>(), root, get(), stream));
    }
    template <class T>
    void scatter(const T* send_parts, T* receive, std::size_t count, int root, weftStream_t stream = nullptr) {
        check(weftScatter(send_parts, receive, count, datatype_of<T>(), root, get(), stream));
    }
    // Returns when every rank has called it.
    void barrier(weftStream_t stream = nullptr) { check(weftBarrier(get(), stream)); }

    // Messages between two ranks: weftSend, weftRecv.
    template <class T>
    void send(const T* buffer, std::size_t count, int peer, weftStream_t stream = nullptr) {
        check(weftSend(buffer, count, datatype_of<T>(), peer, get(), stream));
    }
    template <class T>
    void receive(T* buffer, std::size_t count, int peer, weftStream_t stream = nullptr) {
        check(weftRecv(buffer, count, datatype_of<T>(), peer, get(), stream));
    }
    template <class T>
    void send_receive(const T* send, std::size_t send_count, int target, T* receive, std::size_t receive_count,
                      int source, weftStream_t stream = nullptr) {
        check(weftSendRecv(send, send_count, target, receive, receive_count, source, datatype_of<T>(), get(), stream));
    }

    // Registers a buffer that is used often (weftCommRegister). The buffer must outlive the registration.
    Registration register_buffer(void* memory, std::size_t bytes) {
        void* handle = nullptr;
        check(weftCommRegister(get(), memory, bytes, &handle));
        return Registration(get(), handle);
    }

    // Windows (weftCommWindowRegister). The memory must stay until all ranks have deregistered the window.
    weftWindow_t register_window(void* memory, std::size_t bytes, int flags = WEFT_WIN_DEFAULT) {
        weftWindow_t window = nullptr;
        check(weftCommWindowRegister(get(), memory, bytes, &window, flags));
        return window;
    }
    void deregister_window(weftWindow_t window) { check(weftCommWindowDeregister(get(), window)); }
    // Offsets are bytes.
    template <class T>
    void put(const T* local, std::size_t count, int peer, weftWindow_t window, std::size_t offset_bytes,
             weftStream_t stream = nullptr) {
        check(weftPut(local, count, datatype_of<T>(), peer, window, offset_bytes, get(), stream));
    }
    template <class T>
    void put_signal(const T* local, std::size_t count, int peer, weftWindow_t window, std::size_t offset_bytes,
                    int index = 0, int context = 0, weftStream_t stream = nullptr) {
        check(weftPutSignal(local, count, datatype_of<T>(), peer, window, offset_bytes, index, context, 0, get(),
                            stream));
    }
    template <class T>
    void get_from(T* local, std::size_t count, int peer, weftWindow_t window, std::size_t offset_bytes,
                  weftStream_t stream = nullptr) {
        check(weftGet(local, count, datatype_of<T>(), peer, window, offset_bytes, get(), stream));
    }
    void signal(int peer, int index = 0, int context = 0, weftStream_t stream = nullptr) {
        check(weftSignal(peer, index, context, 0, get(), stream));
    }
    void wait_signal(int peer, int count = 1, int index = 0, int context = 0, weftStream_t stream = nullptr) {
        const weftWaitSignalDesc_t what = {count, peer, index, context};
        check(weftWaitSignal(1, &what, get(), stream));
    }

    // Uneven parts: counts and displacements of each rank, in elements.
    template <class T>
    void all_to_all(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements, T* receive,
                    const std::size_t* receive_counts, const std::size_t* receive_displacements,
                    weftStream_t stream = nullptr) {
        check(weftAlltoAllv(send, send_counts, send_displacements, receive, receive_counts, receive_displacements,
                            datatype_of<T>(), get(), stream));
    }
    // The four arrays are device memory.
    template <class T>
    void all_to_all_device_counts(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements,
                                  T* receive, const std::size_t* receive_counts,
                                  const std::size_t* receive_displacements, weftStream_t stream) {
        check(weftAlltoAllvDeviceCounts(send, send_counts, send_displacements, receive, receive_counts,
                                        receive_displacements, datatype_of<T>(), get(), stream));
    }
    template <class T>
    void gather(const T* send, std::size_t count, T* receive, const std::size_t* counts,
                const std::size_t* displacements, int root, weftStream_t stream = nullptr) {
        check(weftGatherv(send, count, receive, counts, displacements, datatype_of<T>(), root, get(), stream));
    }
    template <class T>
    void scatter(const T* send, const std::size_t* counts, const std::size_t* displacements, T* receive,
                 std::size_t count, int root, weftStream_t stream = nullptr) {
        check(weftScatterv(send, counts, displacements, receive, count, datatype_of<T>(), root, get(), stream));
    }
    template <class T>
    void all_gather(const T* send, std::size_t count, T* receive, const std::size_t* counts,
                    const std::size_t* displacements, weftStream_t stream = nullptr) {
        check(weftAllGatherv(send, count, receive, counts, displacements, datatype_of<T>(), get(), stream));
    }

    template <class T>
    void reduce_scatter(const T* send_parts, T* receive, const std::size_t* counts, weftRedOp_t op = weftSum,
                        weftStream_t stream = nullptr) {
        check(weftReduceScatterv(send_parts, receive, counts, datatype_of<T>(), op, get(), stream));
    }

    // The reduction that sums scalar_r * x_r, each rank r with its own scalar. It lives until destroy_op() or the end
    // of the communicator.
    template <class T>
    weftRedOp_t make_pre_mul_sum(T scalar) {
        weftRedOp_t op = weftSum;
        check(weftRedOpCreatePreMulSum(&op, &scalar, datatype_of<T>(), weftScalarHostImmediate, get()));
        return op;
    }
    // A reduction of a user's function for elements of T: weftRedOpCreate.
    template <class T>
    weftRedOp_t make_reduction(weftRedOpFunction_t function, void* context = nullptr, bool commutative = true) {
        weftRedOp_t op = weftSum;
        check(weftRedOpCreate(&op, function, context, datatype_of<T>(), commutative ? 1 : 0, get()));
        return op;
    }
    void destroy_op(weftRedOp_t op) { check(weftRedOpDestroy(op, get())); }

    // The algorithms that can serve an all-reduce, with predicted times and the choice: weftCommExplain.
    std::string explain(std::size_t count, weftDataType_t type, weftRedOp_t op = weftSum) {
        return whole_text([&](char* text, std::size_t capacity, std::size_t* needed) {
            return weftCommExplain(get(), count, type, op, text, capacity, needed);
        });
    }
    // The same for another collective, by its name in logs: weftCommExplainCollective.
    std::string explain(const std::string& collective, std::size_t count, weftDataType_t type, weftRedOp_t op = weftSum,
                        int root = 0) {
        return whole_text([&](char* text, std::size_t capacity, std::size_t* needed) {
            return weftCommExplainCollective(get(), collective.c_str(), count, type, op, root, text, capacity, needed);
        });
    }
    // Bytes that this communicator holds on this rank.
    std::uint64_t memory_bytes(weftMemStat_t stat = weftMemTotal) const {
        std::uint64_t bytes = 0;
        check(weftCommMemStats(get(), stat, &bytes));
        return bytes;
    }

  private:
    // The text of `write`, which first tells the size that it needs.
    template <class Write>
    static std::string whole_text(Write write) {
        std::size_t needed = 0;
        check(write(nullptr, 0, &needed));
        std::string text(needed, '\0');
        check(write(&text[0], text.size(), nullptr));
        text.pop_back();  // the final 0
        return text;
    }

    // A communicator whose handle `make` writes, now or at the end of a group.
    template <class Make>
    static Communicator made(Make make) {
        detail::HandlePlace place(1, std::make_shared<weftComm_t>(nullptr));
        check(make(place.front().get()));
        Communicator communicator;
        communicator.place_ = std::move(place);
        return communicator;
    }

    detail::HandlePlace place_;
};

}  // namespace weft

#endif
