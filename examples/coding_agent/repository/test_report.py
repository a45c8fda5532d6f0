import unittest

from report import describe, mean


class Reports(unittest.TestCase):
    def test_no_measurement_is_calm(self) -> None:
        self.assertEqual(describe([]), "calm")

    def test_the_mean_of_several_measurements(self) -> None:
        self.assertEqual(mean([4, 6, 8]), 6)

    def test_one_measurement_is_its_own_mean(self) -> None:
        self.assertEqual(mean([5]), 5)

    def test_a_storm(self) -> None:
        self.assertEqual(describe([19, 21, 23]), "storm")


if __name__ == "__main__":
    unittest.main()
