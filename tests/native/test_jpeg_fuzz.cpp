// Thousands of damaged JPEGs, the same ones every time: whatever is in a file, nothing is read or written that is
// not ours. What the sanitizers see is the test; that every image gets an outcome is checked along the way.
#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "jpegs.h"
#include "images.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937;

std::vector<Bytes> seeds() {
    std::vector<Bytes> files;
    for (const bool progressive : {false, true}) {
        for (const auto &[across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
            files.push_back(jpeg_of({61, 83, across, down, progressive}));
            files.push_back(jpeg_of({24, 17, across, down, progressive, false, 1, 6}));
        }
        Kind dense{40, 48, 2, 2, progressive};
        dense.quality = 100;
        dense.own_codes = true;
        files.push_back(jpeg_of(dense));
        files.push_back(jpeg_of({33, 50, 1, 1, progressive, true}));
        files.push_back(jpeg_of({1, 1, 2, 2, progressive}));
    }
    Kind cmyk{20, 20, 1, 1};
    cmyk.colours = JCS_CMYK;
    files.push_back(jpeg_of(cmyk));
    return files;
}

std::ptrdiff_t anywhere(Random &random, const Bytes &file) {
    return file.empty() ? 0 : static_cast<std::ptrdiff_t>(random() % file.size());
}

// Half of the damage is in the first bytes, where the measures and tables are.
void damage(Bytes &file, const Bytes &other, Random &random) {
    const auto place = [&] {
        const std::ptrdiff_t at = anywhere(random, file);
        return random() % 2 == 0 ? std::min<std::ptrdiff_t>(at, static_cast<std::ptrdiff_t>(random() % 700)) : at;
    };
    switch (random() % 7) {
        case 0:
        case 1:
            for (std::size_t i = 1 + random() % 4; i > 0 && !file.empty(); --i) {
                file[static_cast<std::size_t>(place())] = static_cast<std::uint8_t>(random());
            }
            break;
        case 2:
            for (std::size_t i = 1 + random() % 4; i > 0 && !file.empty(); --i) {
                file[static_cast<std::size_t>(place())] ^= static_cast<std::uint8_t>(1u << random() % 8);
            }
            break;
        case 3: file.resize(static_cast<std::size_t>(anywhere(random, file))); break;
        case 4: {
            const std::ptrdiff_t from = place();
            const auto count = std::min<std::ptrdiff_t>(1 + static_cast<std::ptrdiff_t>(random() % 40),
                                                        static_cast<std::ptrdiff_t>(file.size()) - from);
            file.erase(file.begin() + from, file.begin() + from + count);
            break;
        }
        case 5: {
            const std::ptrdiff_t from = anywhere(random, other);
            file.insert(file.begin() + place(), other.begin() + from,
                        other.begin() + std::min(from + 60, static_cast<std::ptrdiff_t>(other.size())));
            break;
        }
        default:
            if (!file.empty()) {
                file[static_cast<std::size_t>(place())] = 0xFF;
            }
    }
}

// Of a batch whose images have `side` pixels on each side.
unstarve::Cut random_cut(Random &random, std::size_t height, std::size_t width, std::size_t side) {
    const auto up_to = [&](std::size_t most) { return static_cast<std::int64_t>(random() % (most + 1)); };
    const std::int64_t top = up_to(height);
    const std::int64_t left = up_to(width);
    unstarve::Cut cut{random() % 5 == 0, top, left, up_to(height), up_to(width), random() % 2 == 0};
    if (random() % 3 == 0) {
        const std::size_t more = random() % 2 == 0 ? random() % 50 : random();
        cut.resized = {{side + more, side + 3}, random() % (more + 1), random() % 4};
    }
    return cut;
}

void every_damaged_image_has_an_outcome(unsigned count) {
    const std::vector<Bytes> files = seeds();
    Random random(20);
    unsigned decoded = 0;
    unsigned failed = 0;
    for (unsigned i = 0; i < count; ++i) {
        Bytes file = files[random() % files.size()];
        for (std::size_t times = 1 + random() % 3; times > 0; --times) {
            damage(file, files[random() % files.size()], random);
        }
        file.shrink_to_fit();  // a byte too far is a byte that is not ours
        const unstarve::Encoded image{file.data(), file.size(), random() % 4 != 0};
        const unstarve::Measured size = unstarve::measure(image);
        const std::size_t side = 1 + random() % 24;
        std::vector<std::byte> table(3 * 256 * 2);
        std::vector<std::byte> out(2 * side * side * 3 * 2);
        const bool as_bytes = random() % 2 == 0;
        const unstarve::Batch batch{{out.data(), side, side, as_bytes ? 1u : 2u, random() % 2 == 0,
                                     as_bytes ? nullptr : table.data()}};
        const auto results = unstarve::decode_cuts(
            {image, image}, {random_cut(random, size.height, size.width, side), {true, 0, 0, 0, 0, false}}, batch,
            1 + i % 2);
        for (const unstarve::Result &result : results) {
            CHECK((result.outcome == unstarve::Outcome::failed) != result.trouble.empty());
            decoded += result.outcome == unstarve::Outcome::decoded;
            failed += result.outcome == unstarve::Outcome::failed;
        }
        if (size.result.outcome == unstarve::Outcome::decoded && size.height * size.width < 500'000) {
            Bytes whole(size.height * size.width * 3);
            unstarve::decode_whole(image, size.height, size.width, whole.data());
        }
    }
    CHECK(decoded > count / 10);  // else the damage would hide what lies behind the header
    CHECK(failed > count / 10);
}

}  // namespace

int main() { every_damaged_image_has_an_outcome(4000); }
