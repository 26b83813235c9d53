// Checkpoints and copies of boxes in device memory, on the fake driver: in the order of the caller's stream.
#include <weft/train.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/device/ranks.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t columns = 50, rows = 6;  // of each rank
const size_t shape[] = {2 * rows, columns}, extents[] = {rows, columns};

std::vector<float> wanted(float factor) {
    std::vector<float> numbers(2 * rows * columns);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = factor * (float(i % 97) - 40);
    return numbers;
}

// The whole tensor in device memory, of which each rank's box has its rows.
class DeviceRows {
  public:
    DeviceRows(const Ranks& ranks, int rank)
        : comm_(ranks.comms[size_t(rank)]),
          stream_(*ranks.streams[size_t(rank)]),
          current_(ranks.placing[size_t(rank)]),
          buffer_(ranks.placing[size_t(rank)], 2 * rows * columns * sizeof(float)),
          begin_(size_t(rank) * rows * columns) {
        offsets_[0] = size_t(rank) * rows;
    }
    // The stream adds the halves of both ranks, maybe after the call.
    void enqueue_sum() {
        write(wanted(0.5));
        demand(weftAllReduce(buffer_.data(), buffer_.data(), 2 * rows * columns, weftFloat32, weftSum, comm_,
                             stream_.weft()));
    }
    void write(const std::vector<float>& numbers) { buffer_.write(numbers.data(), numbers.size() * sizeof(float)); }
    weftTrainBox_t box(bool as_range) const {
        weftTrainBox_t made = WEFT_TRAIN_BOX_INITIALIZER;
        made.name = "weight";
        made.data = static_cast<float*>(buffer_.data()) + begin_;
        made.dims = 2;
        made.shape = shape;
        made.stream = stream_.weft();
        made.isRange = as_range ? 1 : 0;
        made.begin = begin_;
        made.count = rows * columns;
        if (!as_range) made.offsets = offsets_;
        if (!as_range) made.extents = extents;
        return made;
    }
    void check_own_rows() const {
        const Bytes bytes = buffer_.read(2 * rows * columns * sizeof(float));
        const std::vector<float> numbers = wanted(1);
        if (memcmp(bytes.data() + begin_ * sizeof(float), numbers.data() + begin_, rows * columns * sizeof(float)) != 0)
            throw std::runtime_error("other numbers on the device");
    }
    weftComm_t comm() const { return comm_; }

  private:
    weftComm_t comm_;
    const Stream& stream_;
    Current current_;
    DeviceBuffer buffer_;
    size_t begin_, offsets_[2] = {};
};

}  // namespace

TEST_CASE("boxes on devices are saved and loaded in the order of the caller's stream", "[train]") {
    const Folder folder;
    const Ranks ranks({0, 1});
    check_on_threads(2, [&](int own) {
        weftTrainCheckpoint_t checkpoint = nullptr;
        DeviceRows device(ranks, own);
        demand(weftTrainCheckpointCreate(&checkpoint, device.comm()));
        for (const auto mode : {weftTrainSaveBlocking, weftTrainSaveBackground}) {
            const std::string name = folder.path / std::to_string(int(mode));
            device.enqueue_sum();
            std::vector<float> common(3, 7), all(2 * rows * columns);
            weftTrainBox_t boxes[2] = {device.box(mode == weftTrainSaveBackground), WEFT_TRAIN_BOX_INITIALIZER};
            const size_t three = 3;
            boxes[1].name = "host";
            boxes[1].data = common.data();
            boxes[1].dims = 1;
            boxes[1].shape = &three;
            demand(weftTrainCheckpointSave(checkpoint, name.c_str(), boxes, 2, nullptr, 0, mode));
            device.write(wanted(3));
            demand(weftTrainCheckpointWait(checkpoint));
            weftTrainBox_t whole = WEFT_TRAIN_BOX_INITIALIZER;
            whole.name = "weight";
            whole.data = all.data();
            whole.dims = 2;
            whole.shape = shape;
            demand(weftTrainCheckpointLoad(checkpoint, name.c_str(), &whole, 1));
            if (all != wanted(1)) throw std::runtime_error("other numbers in the checkpoint");
            // Work that the stream has at the call does not overwrite the loaded numbers.
            device.enqueue_sum();
            demand(weftTrainCheckpointLoad(checkpoint, name.c_str(), boxes, 2));
            device.check_own_rows();
        }
        weftTrainBox_t wrong = device.box(false);
        weftHostStream_t host = nullptr;
        demand(weftStreamCreate(&host));
        if (own == 1) wrong.stream = host;
        const std::string name = folder.path / "wrong";
        CHECK(weftTrainCheckpointSave(checkpoint, name.c_str(), &wrong, 1, nullptr, 0, weftTrainSaveBlocking) ==
              weftInvalidArgument);
        CHECK_ERROR(last_error(), "argument.stream");
        demand(weftStreamDestroy(host));
        demand(weftTrainCheckpointDestroy(checkpoint));
    });
}

TEST_CASE("boxes on devices come back from a Replica", "[train]") {
    const Ranks ranks({0, 1});
    check_on_threads(2, [&](int own) {
        weftTrainReplica_t replica = nullptr, fresh = nullptr;
        demand(weftTrainReplicaCreate(&replica, 1, 2));
        demand(weftTrainReplicaCreate(&fresh, 1, 2));
        DeviceRows device(ranks, own);
        device.enqueue_sum();
        const weftTrainBox_t box = device.box(own == 0);
        demand(weftTrainReplicaSave(replica, device.comm(), 5, &box, 1, nullptr, 0));
        device.write(wanted(3));
        demand(weftTrainReplicaLoad(own == 0 ? fresh : replica, device.comm(), &box, 1, nullptr));
        device.check_own_rows();
        demand(weftTrainReplicaDestroy(replica));
        demand(weftTrainReplicaDestroy(fresh));
    });
}

}  // namespace weft::internal::test
