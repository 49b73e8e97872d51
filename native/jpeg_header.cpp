#include "jpeg_header.h"

#include <cstring>

#include "exif.h"

namespace unstarve {
namespace {

enum Marker : unsigned {
    baseline = 0xC0,
    huffman_tables = 0xC4,
    start = 0xD8,
    end_marker = 0xD9,
    start_of_scan = 0xDA,
    quantizer_tables = 0xDB,
    restart_interval = 0xDD,
    app0 = 0xE0,
    app1 = 0xE1,
    app14 = 0xEE,
    app15 = 0xEF,
    comment = 0xFE,
};

constexpr std::size_t longest_side = 65500;  // that libjpeg-turbo takes

void expect(bool usual) {
    if (!usual) {
        throw Unusual();
    }
}

// The bytes of one segment; reading more than there are is unusual.
class Segment {
  public:
    Segment(const std::uint8_t *data, std::size_t size) : data_(data), end_(data + size) {}
    const std::uint8_t *data() const { return data_; }
    std::size_t size() const { return static_cast<std::size_t>(end_ - data_); }
    const std::uint8_t *take(std::size_t count) {
        expect(count <= size());
        data_ += count;
        return data_ - count;
    }
    unsigned byte() { return *take(1); }
    unsigned pair() {
        const unsigned high = byte();
        return high << 8 | byte();
    }
    bool begins_with(const char *text, std::size_t count, std::size_t least) const {
        return size() >= least && std::memcmp(data_, text, count) == 0;
    }

  private:
    const std::uint8_t *data_;
    const std::uint8_t *end_;
};

class Reading {
  public:
    JpegHeader read(const std::uint8_t *data, std::size_t size) {
        Segment file(data, size);
        expect(file.pair() == 0xFF00u + start);
        for (;;) {
            expect(file.byte() == 0xFF);
            const unsigned marker = file.byte();
            const std::size_t length = file.pair();
            expect(length >= 2);
            Segment segment(file.take(length - 2), length - 2);
            if (marker == start_of_scan) {
                read_scan(segment);
                break;
            }
            read_segment(marker, segment);
        }
        header_.coded = file.data();
        header_.orientation = metadata_.orientation();
        const std::uint64_t pixels = header_.extent.height * std::uint64_t{header_.extent.width};
        expect(pixels <= max_pixels && pixels / max_pixels_per_byte <= size);
        expect(has_jpeg_end(header_.coded, data + size));
        return header_;
    }

  private:
    void read_segment(unsigned marker, Segment &segment) {
        switch (marker) {
            case baseline: return read_frame(segment);
            case huffman_tables: return read_codes(segment);
            case quantizer_tables: return read_quantizers(segment);
            case restart_interval:
                header_.restart_interval = segment.pair();
                return expect(segment.size() == 0);
            case app0: has_jfif_ = has_jfif_ || segment.begins_with("JFIF", 5, 14); return;
            case app1: return metadata_.add_app1(segment.data(), segment.size());
            case app14: has_adobe_ = has_adobe_ || segment.begins_with("Adobe", 5, 12); return;
            default: return expect((marker > app1 && marker <= app15) || marker == comment);
        }
    }

    void read_quantizers(Segment &segment) {
        while (segment.size() > 0) {
            const unsigned number = segment.byte();
            expect(number < 4);  // with its high bits, two bytes for each
            std::memcpy(quantizers_[number].data(), segment.take(64), 64);
            has_quantizers_ |= 1u << number;
        }
    }

    void read_codes(Segment &segment) {
        while (segment.size() > 0) {
            const unsigned number = segment.byte();
            expect((number & ~0x13u) == 0);
            HuffmanCode code;
            std::memcpy(code.counts.data(), segment.take(16), 16);
            std::size_t count = 0;
            for (const std::uint8_t some : code.counts) {
                count += some;
            }
            expect(count > 0 && count <= 256);
            std::memcpy(code.symbols.data(), segment.take(count), count);
            codes_[number >> 4][number & 3] = code;
            has_codes_[number >> 4] |= 1u << (number & 3);
        }
    }

    void read_frame(Segment &segment) {
        expect(header_.components == 0 && segment.byte() == 8);
        header_.extent.height = segment.pair();
        header_.extent.width = segment.pair();
        header_.components = segment.byte();
        expect(header_.extent.height > 0 && header_.extent.width > 0);
        expect(header_.extent.height <= longest_side && header_.extent.width <= longest_side);
        expect(header_.components == 1 || header_.components == 3);
        for (std::size_t i = 0; i < header_.components; ++i) {
            ids_[i] = segment.byte();
            const unsigned sampling = segment.byte();
            quantizers_of_[i] = segment.byte();
            expect(quantizers_of_[i] < 4);
            if (i == 0 && header_.components == 3) {
                expect(sampling == 0x11 || sampling == 0x21 || sampling == 0x22);
                header_.across = sampling >> 4;
                header_.down = sampling & 15;
            } else {
                expect(sampling == 0x11);
            }
        }
        expect(segment.size() == 0);
        // Of very narrow images libjpeg-turbo does not blend the colours.
        expect(header_.across == 1 || header_.extent.width > 4);
    }

    void read_scan(Segment &segment) {
        expect(header_.components != 0 && segment.byte() == header_.components);
        const bool counted = ids_[0] == 1 && ids_[1] == 2 && ids_[2] == 3;
        expect(header_.components == 1 || (!has_adobe_ && counted) || has_jfif_);
        expect(header_.components == 1 || (ids_[0] != ids_[1] && ids_[1] != ids_[2] && ids_[0] != ids_[2]));
        for (std::size_t i = 0; i < header_.components; ++i) {
            expect(segment.byte() == ids_[i]);
            const unsigned tables = segment.byte();
            const unsigned dc = tables >> 4;
            const unsigned ac = tables & 15;
            expect(dc < 4 && ac < 4);
            expect((has_codes_[0] >> dc & 1) != 0 && (has_codes_[1] >> ac & 1) != 0);
            expect((has_quantizers_ >> quantizers_of_[i] & 1) != 0);
            JpegHeader::Component &component = header_.component[i];
            component.dc = codes_[0][dc];
            component.ac = codes_[1][ac];
            for (std::size_t at = 0; at < 64; ++at) {
                component.quantizers[natural_order[at]] = quantizers_[quantizers_of_[i]][at];
            }
        }
        expect(segment.byte() == 0 && segment.byte() == 63 && segment.byte() == 0 && segment.size() == 0);
    }

    JpegHeader header_;
    std::array<std::array<std::uint8_t, 64>, 4> quantizers_{};
    unsigned has_quantizers_ = 0;
    HuffmanCode codes_[2][4];
    unsigned has_codes_[2] = {};
    unsigned ids_[3] = {};
    unsigned quantizers_of_[3] = {};
    bool has_jfif_ = false;
    bool has_adobe_ = false;
    Metadata metadata_;
};

}  // namespace

bool has_jpeg_end(const std::uint8_t *from, const std::uint8_t *end) {
    for (const std::uint8_t *at = end; at - from >= 2; --at) {
        if (at[-2] == 0xFF && at[-1] == end_marker) {
            return true;
        }
    }
    return false;
}

JpegHeader read_jpeg_header(const std::uint8_t *data, std::size_t size) { return Reading().read(data, size); }

}  // namespace unstarve
